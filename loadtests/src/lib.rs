//! One workload, two clocks: a load tester for real fleets and a simulated fleet.

pub mod report;
pub mod sim;
pub mod workload;
