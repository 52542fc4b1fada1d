//! References to images in user messages.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

/// An image. Its bytes are stored separately, under [`Image::file_name`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub sha256: Digest,
    pub kind: ImageKind,
    /// The size in bytes.
    pub size: u64,
}

impl Image {
    /// The limit for one image and for all images of one request: in base64 they stay below the
    /// 32 MB that Anthropic accepts.
    pub const MAX_BYTES: u64 = 20 << 20;

    /// The name of the file that holds its bytes.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.sha256.as_str(), self.kind.as_str())
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[image: {}, {} bytes]", self.kind.as_str(), self.size)
    }
}

/// A SHA-256 digest in lowercase hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(crate::hex(&bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a SHA-256 digest")]
pub struct InvalidDigest(String);

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 64 && text.bytes().all(is_digit) {
            true => Ok(Self(text)),
            false => Err(InvalidDigest(text)),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// An image format. Every model vendor accepts these four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ImageKind {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl ImageKind {
    /// Detects the format from the first bytes, ignoring file name and declared type.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// The format name, also used as file extension.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_from_the_first_bytes() {
        let cases: [(&[u8], _); 7] = [
            (b"\x89PNG\r\n\x1a\nrest", Some(ImageKind::Png)),
            (b"\xff\xd8\xff\xe0", Some(ImageKind::Jpeg)),
            (b"GIF89a", Some(ImageKind::Gif)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some(ImageKind::Webp)),
            (b"RIFF\0\0\0\0WAVEfmt ", None),
            (b"<svg xmlns=''/>", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(ImageKind::detect(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_digest_rejects_everything_but_hex() {
        let image = Image { sha256: Digest::new([0xab; 32]), kind: ImageKind::Jpeg, size: 7 };
        let text = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<Image>(&text).unwrap(), image);
        assert_eq!(image.file_name(), format!("{}.jpeg", "ab".repeat(32)));
        for wrong in ["../../x".to_owned(), "AB".repeat(32), "a".repeat(63), String::new()] {
            assert!(Digest::try_from(wrong).is_err());
        }
    }
}
