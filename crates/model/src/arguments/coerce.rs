//! Converts arguments to the types of a tool's schema.

use serde_json::{Map, Number, Value};

use crate::json;

/// Converts arguments to the types of the schema where that needs no guessing: `"5"` to 5, `"true"`
/// to true, JSON text to its list or object, one value to a list of one. Other values stay as they
/// are, and the tool rejects them.
pub fn coerce(mut arguments: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    coerce_properties(&mut arguments, schema, 0);
    arguments
}

/// Deeper parts of a schema are ignored.
const MAX_DEPTH: u8 = 16;

fn coerce_properties(object: &mut Map<String, Value>, schema: &Value, depth: u8) {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, expected) in known {
        if let Some(value) = object.get_mut(name) {
            *value = coerce_value(value.take(), expected, depth);
        }
    }
}

fn coerce_value(mut value: Value, schema: &Value, depth: u8) -> Value {
    let types = allowed_types(schema);
    if types.is_empty() || depth >= MAX_DEPTH {
        return value;
    }
    let allows = |name: &str| types.contains(&name);
    match &mut value {
        Value::Object(object) if allows("object") => {
            coerce_properties(object, schema, depth + 1);
            return value;
        }
        Value::Array(items) if allows("array") => {
            let expected = &schema["items"];
            items.iter_mut().for_each(|item| *item = coerce_value(item.take(), expected, depth + 1));
            return value;
        }
        Value::String(_) if allows("string") => return value,
        Value::Bool(_) if allows("boolean") => return value,
        Value::Number(number) if allows("number") || (allows("integer") && !number.is_f64()) => return value,
        Value::Number(number) if allows("integer") => {
            return number.as_f64().and_then(to_integer).unwrap_or(value);
        }
        Value::Null => return value,
        _ => {}
    }
    if let Value::String(text) = &value
        && let Some(better) = types.iter().find_map(|expected| parse_as(text, expected))
    {
        return coerce_value(better, schema, depth + 1);
    }
    if allows("array") {
        return Value::Array(vec![coerce_value(value, &schema["items"], depth + 1)]);
    }
    value
}

/// The types that a schema allows, also in `anyOf` and `oneOf`.
fn allowed_types(schema: &Value) -> Vec<&str> {
    let own = match &schema["type"] {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()).flatten();
    own.iter().chain(alternatives.map(|one| &one["type"])).filter_map(Value::as_str).collect()
}

fn parse_as(text: &str, expected: &str) -> Option<Value> {
    let text = text.trim();
    let integer = || text.parse::<i64>().ok().map(Value::from);
    let float = || text.parse::<f64>().ok();
    match expected {
        "integer" => integer().or_else(|| to_integer(float()?)),
        "number" => integer().or_else(|| Number::from_f64(float()?).map(Value::Number)),
        "boolean" => text.to_lowercase().parse::<bool>().ok().map(Value::from),
        "null" if text == "null" => Some(Value::Null),
        "array" => json::parse(text).ok().filter(Value::is_array),
        "object" => json::parse(text).ok().filter(Value::is_object),
        _ => None,
    }
}

/// A number without a fraction as an integer.
fn to_integer(number: f64) -> Option<Value> {
    format!("{number:.0}").parse::<i64>().ok().filter(|_| number.fract() == 0.0).map(Value::from)
}
