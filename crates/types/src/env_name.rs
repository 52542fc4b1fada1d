//! Environment variable names.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A variable name that every shell accepts: `[A-Za-z_][A-Za-z0-9_]*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvName(String);

impl EnvName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for EnvName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a variable name (letters, digits and `_`, not starting with a digit)")]
pub struct InvalidEnvName {
    pub text: String,
}

impl FromStr for EnvName {
    type Err = InvalidEnvName;

    /// Ignores surrounding white space.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.trim();
        let mut bytes = name.bytes();
        let starts_well = bytes.next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic());
        if starts_well && bytes.all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidEnvName { text: text.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_checked() {
        let cases = [
            ("GITHUB_TOKEN", Some("GITHUB_TOKEN")),
            ("  _x9 ", Some("_x9")),
            ("", None),
            ("9LIVES", None),
            ("A-B", None),
            ("A B", None),
            ("A=1", None),
            ("ÄRGER", None),
            ("A\n", Some("A")),
            ("A\nB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<EnvName>().ok().as_ref().map(EnvName::as_str), expected, "{text:?}");
        }
    }
}
