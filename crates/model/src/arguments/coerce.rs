//! Fits arguments to the types that a tool asks for.

use serde_json::{Map, Number, Value};

use crate::json;

/// The arguments with the types of the schema where they can be had without guessing: `"5"` for 5, `"true"` for true, the
/// JSON text of a list or an object for itself, one value for a list of one. What does not fit stays as it is, for the tool to
/// complain about.
pub fn coerce(mut arguments: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    properties(&mut arguments, schema, 0);
    arguments
}

/// Schemas are as deep as their author likes.
const DEPTH: u8 = 16;

fn properties(object: &mut Map<String, Value>, schema: &Value, depth: u8) {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, wanted) in known {
        if let Some(value) = object.get_mut(name) {
            *value = fit(value.take(), wanted, depth);
        }
    }
}

fn fit(mut value: Value, schema: &Value, depth: u8) -> Value {
    let types = types(schema);
    if types.is_empty() || depth >= DEPTH {
        return value;
    }
    let wants = |name: &str| types.contains(&name);
    match &mut value {
        Value::Object(object) if wants("object") => {
            properties(object, schema, depth + 1);
            return value;
        }
        Value::Array(items) if wants("array") => {
            if let Some(wanted) = schema.get("items") {
                items.iter_mut().for_each(|item| *item = fit(item.take(), wanted, depth + 1));
            }
            return value;
        }
        Value::String(_) if wants("string") => return value,
        Value::Bool(_) if wants("boolean") => return value,
        Value::Number(number) if wants("number") || (wants("integer") && !number.is_f64()) => return value,
        Value::Number(number) if wants("integer") => {
            return number.as_f64().and_then(whole).unwrap_or(value);
        }
        Value::Null => return value,
        _ => {}
    }
    if let Value::String(text) = &value
        && let Some(better) = types.iter().find_map(|wanted| from_text(text, wanted))
    {
        return fit(better, schema, depth + 1);
    }
    if wants("array") {
        let item = schema.get("items").map(|wanted| fit(value.clone(), wanted, depth + 1));
        return Value::Array(vec![item.unwrap_or(value)]);
    }
    value
}

/// The types a schema allows, also through alternatives.
fn types(schema: &Value) -> Vec<&str> {
    let own = match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let of_alternatives = alternatives.filter_map(|one| one.get("type")?.as_str());
    own.into_iter().chain(of_alternatives).collect()
}

fn from_text(text: &str, wanted: &str) -> Option<Value> {
    let text = text.trim();
    match wanted {
        "integer" => match text.parse::<i64>() {
            Ok(number) => Some(number.into()),
            Err(_) => text.parse::<f64>().ok().and_then(whole),
        },
        "number" => match text.parse::<i64>() {
            Ok(number) => Some(number.into()),
            Err(_) => text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number),
        },
        "boolean" if text.eq_ignore_ascii_case("true") => Some(true.into()),
        "boolean" if text.eq_ignore_ascii_case("false") => Some(false.into()),
        "null" if text == "null" => Some(Value::Null),
        "array" => json::parse(text).ok().filter(Value::is_array),
        "object" => json::parse(text).ok().filter(Value::is_object),
        _ => None,
    }
}

/// A number without a fraction as an integer.
fn whole(number: f64) -> Option<Value> {
    (number.fract() == 0.0).then(|| format!("{number:.0}").parse::<i64>().ok()).flatten().map(Value::from)
}
