//! One workload, two clocks: a load tester for real fleets and a simulated fleet.

pub mod calibration;
pub mod capacity;
pub mod exchange;
pub mod live;
pub mod report;
pub mod sim;
pub mod statistics;
pub mod stub;
pub mod workload;
