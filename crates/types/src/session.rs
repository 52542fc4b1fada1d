//! Session keys.

crate::text_id! {
    /// The key of a session. It may contain any character; names and paths use a hash of it.
    SessionKey
}
