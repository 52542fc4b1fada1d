//! One definition per key. The typed field, its default, its variable, validation, the reference
//! page and the JSON Schema are derived from it.

use serde_json::Value;

use super::setting::{Accepted, InvalidValue, SettingNote};
use super::yaml::Node;

/// The definition of a key.
#[derive(Debug)]
pub struct ConfigKey {
    /// The dotted path in `config.yaml`.
    pub path: &'static str,
    /// The variable that sets it from the environment or `.env`.
    pub variable: &'static str,
    /// The documentation, in one paragraph.
    pub doc: &'static str,
    /// Older paths that are still read.
    pub aliases: &'static [&'static str],
    pub visibility: Visibility,
    pub default: fn() -> Value,
    pub(crate) minimum: Option<u64>,
    pub(crate) accepted: fn() -> Accepted,
    pub(crate) parse: fn(&Node, &mut Vec<SettingNote>) -> Result<Value, InvalidValue>,
}

/// Whether a value may be displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Public,
    /// Stored in `.env` and never printed.
    Secret,
}

impl ConfigKey {
    pub fn accepted(&self) -> Accepted {
        let mut accepted = (self.accepted)();
        if let Some(minimum) = self.minimum {
            accepted.description = format!("a whole number from {minimum} up");
            accepted.schema["minimum"] = minimum.into();
        }
        accepted
    }

    /// Checks a value and returns it as it is displayed.
    pub fn check(&self, node: &Node, notes: &mut Vec<SettingNote>) -> Result<Value, InvalidValue> {
        let value = (self.parse)(node, notes)?;
        match (value.as_u64(), self.minimum) {
            (Some(number), Some(minimum)) if number < minimum => {
                Err(InvalidValue::new(node, self.accepted().description))
            }
            _ => Ok(value),
        }
    }
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
                        $crate::setting::Setting::to_value(&default)
                    },
                    minimum: $crate::define::section!(@least $($least)?),
                    accepted: <$type as $crate::setting::Setting>::accepted,
                    parse: |node, notes| {
                        let value = <$type as $crate::setting::Setting>::read(node, notes)?;
                        Ok($crate::setting::Setting::to_value(&value))
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
