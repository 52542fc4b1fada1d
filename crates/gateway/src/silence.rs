//! Answers that say that nothing is to be said.

/// What a model writes when it has nothing to say.
const TOKENS: [&str; 4] = ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"];

/// Whether a whole reply says that nothing is to be sent. A reply that only mentions such a word is sent.
pub fn is_silence(reply: &str) -> bool {
    TOKENS.contains(&reply.trim())
}

/// Whether what was written of a reply so far may turn out to say that, or says nothing yet.
pub fn may_be_silence(begun: &str) -> bool {
    TOKENS.iter().any(|token| token.starts_with(begun.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_become_a_token_is_held_back() {
        for begun in ["", " ", "[", "[SIL", "[SILENT]\n", "NO", "NO ", "SILENT"] {
            assert!(may_be_silence(begun), "{begun:?}");
        }
        for begun in ["[SILENT].", "No", "NO W", "SILENTLY", "I"] {
            assert!(!may_be_silence(begun), "{begun:?}");
        }
    }

    #[test]
    fn only_a_whole_token_is_silence() {
        for reply in ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY", "  [SILENT]\n", "\r\nNO REPLY "] {
            assert!(is_silence(reply), "{reply:?}");
        }
        for reply in [
            "", " ", "silent", "[SILENT].", "[silent]", "NO  REPLY", "SILENT SILENT", "I say [SILENT]",
            "`SILENT`",
        ] {
            assert!(!is_silence(reply), "{reply:?}");
        }
    }
}
