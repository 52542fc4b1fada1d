//! The turn loop and its tools.
