//! Dashboards and Prometheus rules as code: one source of metric names, and files that a test compares with it.

pub mod board;
pub mod boards;
pub mod draw;
pub mod files;
pub mod panel;
pub mod prometheus;
pub mod rules;
pub mod yaml;
