//! Pictures that people show to a model.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A picture. Its bytes are kept elsewhere, under this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The SHA-256 of its bytes.
    pub sha256: Digest,
    /// What it is.
    pub kind: ImageKind,
    /// Bytes.
    pub size: u64,
}

impl Image {
    /// The name of the file that its bytes are kept in.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.sha256.as_str(), self.kind.word())
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[image: {}, {} bytes]", self.kind.word(), self.size)
    }
}

/// A SHA-256, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest with these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 64 && text.bytes().all(is_digit) {
            true => Ok(Self(text)),
            false => Err(format!("`{text}` is no SHA-256")),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// What a picture is. These are the kinds that every vendor takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl ImageKind {
    /// What begins with these bytes, whatever anybody calls it.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Its word, which files of it end with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }

    /// Its media type.
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
    fn kinds_are_known_by_their_first_bytes() {
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
            assert_eq!(ImageKind::of(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_digest_is_never_a_path() {
        let image = Image { sha256: Digest::new([0xab; 32]), kind: ImageKind::Jpeg, size: 7 };
        let text = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<Image>(&text).unwrap(), image);
        assert_eq!(image.file_name(), format!("{}.jpeg", "ab".repeat(32)));
        for wrong in ["../../x".to_owned(), "AB".repeat(32), "a".repeat(63), String::new()] {
            assert!(Digest::try_from(wrong).is_err());
        }
    }
}
