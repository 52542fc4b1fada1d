//! What a path means.

use hermes_guest::protocol::file::FileFault;

use crate::shell::state::State;

/// An absolute path: `~` is the session's home, and what is relative starts where the session is.
pub(crate) fn resolve(path: &[u8], session: Option<&State>) -> Result<Vec<u8>, FileFault> {
    if path.contains(&0) {
        return Err(FileFault::Os { errno: libc::EINVAL });
    }
    if path.starts_with(b"/") {
        return Ok(path.to_vec());
    }
    let state = session.ok_or(FileFault::NotAbsolute)?;
    if let Some(rest) = path.strip_prefix(b"~").filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
        let home = state.env.get(b"HOME".as_slice()).filter(|home| home.starts_with(b"/"));
        return Ok([home.ok_or(FileFault::NotAbsolute)?.as_slice(), rest].concat());
    }
    Ok([state.cwd.as_slice(), b"/", path].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_by_the_session() {
        let mut state = State { cwd: b"/work".to_vec(), ..State::default() };
        state.env.insert(b"HOME".to_vec(), b"/home/u".to_vec());
        let cases: [(&[u8], &[u8]); 5] = [
            (b"/a", b"/a"),
            (b"a/b", b"/work/a/b"),
            (b"~", b"/home/u"),
            (b"~/a", b"/home/u/a"),
            (b"~a", b"/work/~a"),
        ];
        for (path, expected) in cases {
            assert_eq!(resolve(path, Some(&state)).unwrap(), expected);
        }
        assert_eq!(resolve(b"a", None), Err(FileFault::NotAbsolute));
        assert_eq!(resolve(b"~", Some(&State::default())), Err(FileFault::NotAbsolute));
    }
}
