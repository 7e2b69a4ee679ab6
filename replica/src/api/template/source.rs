//! Templates as people write them for `transformers`, brought to the Jinja that we run.

/// Turns `{% generation %}` blocks, which mark an answer's text for training, into blocks that do nothing.
/// The marks that trim white space stay.
pub fn adapted(source: &str) -> String {
    let mut adapted = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start + 2..start + length];
        let name = tag.trim_matches(['-', '+', ' ', '\t', '\r', '\n']);
        let replacement = match name {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        adapted.push_str(&rest[..start + 2]);
        match replacement {
            Some(replacement) => adapted.push_str(&tag.replacen(name, replacement, 1)),
            None => adapted.push_str(tag),
        }
        adapted.push_str("%}");
        rest = &rest[start + length + 2..];
    }
    adapted.push_str(rest);
    adapted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_keep_their_trims() {
        assert_eq!(
            adapted("a {%- generation -%} b {% endgeneration +%}{% if generation %}c{% endif %} {% "),
            "a {%- if true -%} b {% endif +%}{% if generation %}c{% endif %} {% "
        );
    }
}
