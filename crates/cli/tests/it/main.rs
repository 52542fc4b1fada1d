//! The tests that use the command as a whole, or its configuration on real files.

mod edits;
