//! Files of any content: no panic, and a file that is not understood is not touched.

use hermes_config::dotenv::DotEnv;
use hermes_config::{change, yaml};
use proptest::prelude::*;

use crate::Home;

const FIXTURE: &str = include_str!("../fixtures/python-user.yaml");

/// The fixture with pieces cut out, doubled, moved or replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let length = FIXTURE.len();
    let damage = (0..length, 0..length, 0..40_usize, prop::collection::vec(any::<u8>(), 0..6), 0..4_u8);
    prop::collection::vec(damage, 1..6).prop_map(|damages| {
        let mut text = FIXTURE.as_bytes().to_vec();
        for (at, other, width, bytes, kind) in damages {
            let (at, other) = (at.min(text.len()), other.min(text.len()));
            let end = (at + width).min(text.len());
            match kind {
                0 => drop(text.splice(at..end, bytes)),
                1 => drop(text.drain(at..end)),
                2 => {
                    let piece = text[at..end].to_vec();
                    drop(text.splice(other..other, piece));
                }
                _ => {
                    drop(text.splice(at..at, b"\n\t- {[&a *a !!x |\n".iter().copied().take(bytes.len() * 3)))
                }
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        yaml::parse(&text).ok();
        DotEnv::parse(&text);
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "[-a:#&*!|>'\"%@`{}\\[\\], \n\t?<~0]{0,80}") {
        yaml::parse(&text).ok();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_file_is_edited_correctly_or_left_unchanged(text in damaged(), number in 1_u64..9999) {
        let home = Home::new();
        home.write("config.yaml", &text);
        let loaded = home.load(&[]);
        let result = change::set(home.path(), "terminal.container_memory", &number.to_string());
        let after = std::fs::read(home.path().join("config.yaml")).unwrap();
        match result {
            Err(_) => prop_assert_eq!(after, text),
            Ok(_) => {
                let reread = home.load(&[]);
                let value = reread.resolved("terminal.container_memory").map(|r| r.value.clone());
                prop_assert_eq!(value, Some(number.into()));
                for other in loaded.resolved.iter().filter(|r| r.key.path != "terminal.container_memory") {
                    let now = reread.resolved(other.key.path).map(|r| r.value.clone());
                    prop_assert_eq!(now, Some(other.value.clone()), "{}", other.key.path);
                }
            }
        }
    }

    #[test]
    fn a_damaged_secrets_file_keeps_its_other_values(text in damaged()) {
        let home = Home::new();
        home.write(".env", &text);
        let before = home.load(&[]);
        let result = change::set(home.path(), "SOME_TOKEN", "value");
        let after = std::fs::read(home.path().join(".env")).unwrap();
        if result.is_err() {
            prop_assert_eq!(after, text);
        } else {
            let reread = home.load(&[]);
            for entry in &before.layers.dotenv.entries {
                prop_assert_eq!(reread.layers.dotenv.get(&entry.name).map(|e| &e.value), before.layers.dotenv.get(&entry.name).map(|e| &e.value));
            }
        }
    }
}
