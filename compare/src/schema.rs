//! Pieces of JSON Schemas (2020-12).

use serde_json::{Map, Value, json};

/// An object with these keys, each with its schema and a sentence about it, and no others. A key that ends in `?` may
/// be missing.
pub(crate) fn object(rows: &[(&str, &Value, &str)]) -> Value {
    let name = |key: &str| key.trim_end_matches('?').to_owned();
    let required: Vec<&str> = rows.iter().map(|(key, ..)| *key).filter(|key| !key.ends_with('?')).collect();
    let properties: Map<String, Value> =
        rows.iter().map(|(key, schema, text)| (name(key), described(schema, text))).collect();
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// A list of them.
pub(crate) fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// A schema with a sentence about it.
fn described(schema: &Value, text: &str) -> Value {
    let mut schema = schema.clone();
    schema["description"] = json!(text);
    schema
}
