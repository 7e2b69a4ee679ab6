//! Which model a request's name stands for: aliases, weighted splits, a default, fallbacks.

use super::attempts::no_replica;
use super::error::{Error, What};
use crate::config::Models;
use crate::gateway::{Gateway, NoModel};
use gateway_core::replica::ModelKey;

/// A model that some replica named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// What replicas call it.
    pub name: String,
    /// Its key in this gateway.
    pub key: ModelKey,
}

/// Finds the model for a name, which is empty when the request names none.
///
/// # Errors
///
/// When nobody serves it.
pub fn resolve(gateway: &Gateway, models: &Models, asked: &str) -> Result<Named, Error> {
    let wanted = match models.aliases.get(asked) {
        Some(targets) if targets.len() == 1 => &targets[0].0,
        Some(targets) => draw(targets, gateway.lot()),
        None if asked.is_empty() => match (&models.default, gateway.only_model()) {
            (Some(default), _) => default,
            (None, Some((name, key))) => return Ok(Named { name, key }),
            (None, None) => return Err(missing(gateway)),
        },
        None => asked,
    };
    match gateway.model(wanted) {
        Ok(key) => Ok(or_fallback(gateway, models, Named { name: wanted.to_owned(), key })),
        Err(NoModel::NotYet) => Err(no_replica(gateway, wanted)),
        Err(NoModel::Unknown) => {
            let default = models.default.as_deref();
            let key = default.and_then(|default| gateway.model(default).ok());
            match default.zip(key) {
                Some((name, key)) => Ok(or_fallback(gateway, models, Named { name: name.to_owned(), key })),
                None => Err(unknown(gateway, models, wanted)),
            }
        }
    }
}

/// The first of the model and its fallbacks that some replica takes work for; itself when none does.
fn or_fallback(gateway: &Gateway, models: &Models, named: Named) -> Named {
    if models.fallbacks.is_empty() || gateway.serves(named.key) {
        return named;
    }
    let fallbacks = models.fallbacks.get(&named.name).into_iter().flatten();
    let known =
        fallbacks.filter_map(|name| Some(Named { name: name.clone(), key: gateway.model(name).ok()? }));
    known.into_iter().find(|fallback| gateway.serves(fallback.key)).unwrap_or(named)
}

/// One of the targets, each as often as its weight says; `lot` is from 0 to 1.
fn draw(targets: &[(String, u32)], lot: f64) -> &str {
    let total: u32 = targets.iter().map(|(_, weight)| weight).sum();
    let mut left = lot * f64::from(total);
    for (name, weight) in targets {
        left -= f64::from(*weight);
        if left < 0.0 {
            return name;
        }
    }
    &targets[targets.len() - 1].0
}

/// Names that clients may ask for now.
pub fn names(gateway: &Gateway, models: &Models) -> Vec<String> {
    let mut names = gateway.models();
    if !models.hide_aliases {
        let is_served = |targets: &[(String, u32)]| targets.iter().any(|(target, _)| names.contains(target));
        let aliases = models.aliases.iter().filter(|(_, targets)| is_served(targets));
        let aliases: Vec<_> = aliases.map(|(alias, _)| alias.clone()).collect();
        names.extend(aliases);
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// 404 with what there is.
pub fn unknown(gateway: &Gateway, models: &Models, name: &str) -> Error {
    let there = names(gateway, models).join(", ");
    Error::new(What::UnknownModel, format!("the model `{name}` does not exist; there is {there}"))
        .param("model")
}

fn missing(gateway: &Gateway) -> Error {
    if gateway.is_ready() {
        let message = format!("`model` is missing; there is {}", gateway.models().join(", "));
        return Error::new(What::BadBody, message).param("model");
    }
    no_replica(gateway, "any model")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_follows_its_weights() {
        let targets = [("a".to_owned(), 9), ("b".to_owned(), 1)];
        let drawn = (0..1000).filter(|lot| draw(&targets, f64::from(*lot) / 1000.0) == "b").count();
        assert_eq!(drawn, 100);
        assert_eq!(draw(&targets, 1.0), "b");
        assert_eq!(draw(&[("a".to_owned(), 0)], 0.5), "a");
    }
}
