//! Configs of well-known models, so that planning needs no file. Pure.

use serde_json::{Map, Value};

use super::model::Model;

const CONFIGS: &str = include_str!("models.json");

fn configs() -> Map<String, Value> {
    serde_json::from_str(CONFIGS).expect("models.json is an object; the tests read all of it")
}

/// The model of that name.
///
/// # Errors
///
/// Names the models there are.
pub fn known(name: &str) -> Result<Model, String> {
    let configs = configs();
    let config = configs.get(&name.to_lowercase()).ok_or_else(|| {
        let names: Vec<_> = configs.keys().map(String::as_str).collect();
        format!("{name} is neither a path nor a known model; known: {}", names.join(", "))
    })?;
    Model::of_config(name, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_model_can_be_estimated() {
        for name in configs().keys() {
            let model = known(name).unwrap();
            assert!(model.parameters > 100_000_000 && !model.layers.is_empty(), "{name}");
        }
    }

    #[test]
    fn an_unknown_one_is_answered_with_the_list() {
        assert!(known("gpt-9").unwrap_err().contains("llama-3-8b"));
    }

    #[test]
    fn an_unknown_architecture_is_refused_and_not_guessed() {
        let config = serde_json::json!({"model_type": "mamba2", "hidden_size": 10});
        let message = Model::of_config("m", &config).unwrap_err();
        assert!(message.contains("cannot estimate"), "{message}");
    }
}
