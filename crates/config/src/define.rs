//! One definition per key: from it come the typed field, its default, its variable, validation, the reference
//! page and the JSON Schema.

use serde_json::Value;

use super::setting::{InvalidValue, SettingNote};
use super::yaml::Node;

/// What is known of a key.
#[derive(Debug)]
pub struct ConfigKey {
    /// Its dotted path in `config.yaml`.
    pub path: &'static str,
    /// The variable that sets it from the environment or `.env`.
    pub variable: &'static str,
    /// What it does, in one paragraph.
    pub doc: &'static str,
    /// Older paths that are still read.
    pub aliases: &'static [&'static str],
    /// Whether the value may be shown.
    pub visibility: Visibility,
    /// The value when nobody sets it.
    pub default: fn() -> Value,
    /// What is accepted, as a JSON Schema.
    pub schema: fn() -> Value,
    /// What is accepted, in words.
    pub expected: fn() -> String,
    /// Reads and checks a value, and gives it as it is shown.
    pub check: fn(&Node, &mut Vec<SettingNote>) -> Result<Value, InvalidValue>,
}

/// Whether a value may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Anybody may see it.
    Public,
    /// It is kept in `.env` and never printed.
    Secret,
}

/// A lower bound that a number has to keep.
pub(crate) fn check_minimum(
    shown: &Value,
    least: Option<u64>,
    node: &Node,
    expected: String,
) -> Result<(), InvalidValue> {
    match (shown.as_u64(), least) {
        (Some(number), Some(least)) if number < least => Err(InvalidValue {
            at: node.at,
            expected: expected_at_least(expected, Some(least)),
            found: format!("`{number}`"),
        }),
        _ => Ok(()),
    }
}

/// What is accepted, in words, with a lower bound.
pub(crate) fn expected_at_least(expected: String, least: Option<u64>) -> String {
    least.map_or(expected, |least| format!("a whole number from {least} up"))
}

/// A schema with a lower bound.
pub(crate) fn with_minimum(mut schema: Value, least: Option<u64>) -> Value {
    if let Some(least) = least {
        schema["minimum"] = Value::from(least);
    }
    schema
}

/// Defines a section: a struct with one typed field per key, and the table of its keys.
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])+
        $section:ident $prefix:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:expr, $variable:literal
                $(, also $alias:literal)*
                $(, at_least $least:literal)?
                ;
            )+
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $section {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $section {
            /// The keys of this section.
            pub const KEYS: &'static [$crate::define::ConfigKey] = &[
                $($crate::define::ConfigKey {
                    path: concat!($prefix, stringify!($field)),
                    variable: $variable,
                    doc: concat!($($doc, "\n"),+),
                    aliases: &[$($alias),*],
                    visibility: <$type as $crate::setting::Setting>::VISIBILITY,
                    default: || {
                        let default: $type = $default;
                        $crate::setting::Setting::show(&default)
                    },
                    schema: || {
                        let schema = <$type as $crate::setting::Setting>::schema();
                        $crate::define::with_minimum(schema, $crate::define::section!(@least $($least)?))
                    },
                    expected: || {
                        let expected = <$type as $crate::setting::Setting>::expected();
                        $crate::define::expected_at_least(expected, $crate::define::section!(@least $($least)?))
                    },
                    check: |node, notes| {
                        let value = <$type as $crate::setting::Setting>::read(node, notes)?;
                        let shown = $crate::setting::Setting::show(&value);
                        let least = $crate::define::section!(@least $($least)?);
                        let expected = <$type as $crate::setting::Setting>::expected();
                        $crate::define::check_minimum(&shown, least, node, expected)?;
                        Ok(shown)
                    },
                },)+
            ];

            /// Reads every key, each from the highest layer that has it.
            pub(crate) fn read(layers: &mut $crate::layers::LayerReader<'_>) -> Self {
                let mut keys = Self::KEYS.iter();
                Self { $($field: layers.read_key(keys.next(), || $default),)+ }
            }
        }
    };
    (@least) => { None };
    (@least $least:literal) => { Some($least) };
}
pub(crate) use section;
