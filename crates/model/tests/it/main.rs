//! The client against a scripted model, over HTTP.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod aimock;
mod context_window;
mod fallback;
mod images;
mod replies;
mod support;
mod trust;
mod vendors;
