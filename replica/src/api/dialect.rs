//! How a model family writes tool calls and thoughts: read off its chat template, unless an option says so.

use super::content::Form;
use crate::config::ToolCallParser;

/// One model's manner of writing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dialect {
    /// How it calls tools; absent when its template shows it none.
    pub calls: Option<Form>,
    /// Whether it may think aloud before it answers.
    pub thinks: bool,
}

impl Dialect {
    /// What a template gives away.
    pub fn of(template: &str, parser: ToolCallParser, thinks: Option<bool>) -> Self {
        let form = match parser {
            ToolCallParser::Hermes => Form::Hermes,
            ToolCallParser::Mistral => Form::Mistral,
            ToolCallParser::Auto if template.contains("<tool_call>") => Form::Hermes,
            ToolCallParser::Auto if template.contains("[TOOL_CALLS]") => Form::Mistral,
            ToolCallParser::Auto | ToolCallParser::Json => Form::Json,
        };
        Self {
            calls: template.contains("tools").then_some(form),
            thinks: thinks.unwrap_or_else(|| template.contains("<think>")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_give_their_dialect_away() {
        let of = |template| Dialect::of(template, ToolCallParser::Auto, None);
        assert_eq!(of("{{ messages }}"), Dialect::default());
        assert_eq!(of("{% if tools %}<tool_call>").calls, Some(Form::Hermes));
        assert_eq!(of("{% if tools %}[TOOL_CALLS]").calls, Some(Form::Mistral));
        assert_eq!(of("{% if tools %}<|python_tag|>").calls, Some(Form::Json));
        assert!(of("<think>").thinks);
        assert!(!Dialect::of("<think>", ToolCallParser::Auto, Some(false)).thinks);
    }
}
