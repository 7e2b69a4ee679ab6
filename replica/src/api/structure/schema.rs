//! What a JSON schema may be, before it is compiled: bounded, and possible to satisfy.

use std::collections::BTreeSet;

use serde_json::Value;

use super::SOURCE_BYTES_MAX;

/// Values over all `enum`s of a schema.
const ENUM_VALUES_MAX: usize = 5000;
const DEPTH_MAX: usize = 64;
const KINDS: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Says what is wrong, as the end of a sentence.
pub fn check(schema: &Value) -> Result<(), String> {
    let bytes = schema.to_string().len();
    if bytes > SOURCE_BYTES_MAX {
        return Err(format!("has {bytes} bytes; at most {SOURCE_BYTES_MAX} are compiled"));
    }
    let mut values = 0;
    check_node(schema, 0, &mut values)?;
    check_end(schema, schema, &mut BTreeSet::new())
}

fn check_node(node: &Value, depth: usize, values: &mut usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("is nested deeper than {DEPTH_MAX} levels"));
    }
    match node {
        Value::Array(items) => items.iter().try_for_each(|item| check_node(item, depth + 1, values)),
        Value::Object(fields) => {
            // `properties` may have a property that is called type: its value is a schema then, not a word.
            for kind in fields.get("type").into_iter().flat_map(words) {
                if !KINDS.contains(&kind) {
                    return Err(format!("has the unknown type {kind:?}"));
                }
            }
            *values += fields.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
            if *values > ENUM_VALUES_MAX {
                return Err(format!("has more than {ENUM_VALUES_MAX} enum values"));
            }
            fields.values().try_for_each(|value| check_node(value, depth + 1, values))
        }
        _ => Ok(()),
    }
}

fn words(kind: &Value) -> Vec<&str> {
    match kind {
        Value::String(word) => vec![word],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Refuses a schema that no finite value fits: one that needs itself, through references and required properties.
fn check_end<'a>(root: &'a Value, node: &'a Value, open: &mut BTreeSet<&'a str>) -> Result<(), String> {
    if let Some(reference) = node["$ref"].as_str() {
        if !open.insert(reference) {
            return Err(format!("needs itself without end, through $ref {reference:?}"));
        }
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let target = target.ok_or_else(|| format!("has the $ref {reference:?}, which is not in it"))?;
        check_end(root, target, open)?;
        open.remove(reference);
    }
    for part in node["allOf"].as_array().into_iter().flatten() {
        check_end(root, part, open)?;
    }
    for name in node["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        check_end(root, &node["properties"][name], open)?;
    }
    if node["minItems"].as_u64().is_some_and(|least| least > 0) {
        check_end(root, &node["items"], open)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // U035
    #[test]
    fn schemas_out_of_bounds_are_refused_by_what_is_wrong() {
        for (schema, what) in [
            (json!({"type": "objekt"}), "unknown type"),
            (json!({"properties": {"a": {"type": ["string", "text"]}}}), "unknown type"),
            (json!({"$ref": "#"}), "without end"),
            (
                json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
                "without end",
            ),
            (json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}), "without end"),
            (json!({"$ref": "#/$defs/missing"}), "not in it"),
            (json!({"description": "x".repeat(1 << 20)}), "bytes"),
            (json!({"enum": (0..10_000).collect::<Vec<_>>()}), "enum values"),
        ] {
            let found = check(&schema).unwrap_err();
            assert!(found.contains(what), "{found}");
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(check(&deep).unwrap_err().contains("nested"));
    }

    #[test]
    fn a_schema_that_may_end_is_taken() {
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "type": {"type": "string"}}, "required": ["type"]});
        assert_eq!(check(&tree), Ok(()));
        let list = json!({"type": "array", "items": {"$ref": "#"}});
        assert_eq!(check(&list), Ok(()));
    }
}
