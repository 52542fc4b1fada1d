//! Authenticated users.

crate::text_id! {
    /// A user, by the identity that the entry point authenticated, such as `discord:1234` or `cli:ada`.
    Person
}
