//! All alerts.

use super::{Alert, burn, symptoms};

/// Budgets first, then symptoms.
pub fn all() -> Vec<Alert> {
    let mut alerts = burn::alerts();
    alerts.extend(symptoms::fleet());
    alerts.extend(symptoms::machine());
    alerts
}
