//! No input makes the gate panic, hang or use much memory. The fuzz target runs the same for
//! longer.

use std::time::{Duration, Instant};

use crate::support::report;

/// A deterministic random number generator.
struct TestRng(u64);

impl TestRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

const PIECES: &[&str] = &[
    "rm", " ", "-rf", "/", "$", "(", ")", "$(", "`", "\"", "'", "\\", "\n", ";", "|", "&", "&&", "<<E\n",
    "E\n", "<", ">", "{", "}", "${", "x", "=", "[[", "]]", "((", "))", "$((", "if", "then", "fi", "case",
    "esac", "in", "for", "do", "done", "function", "*", "?", "[", "]", "~", "é", "\u{202e}", "bash -c ",
    "eval ", "python -c ", "awk ", "sed ", "find . -exec ", "xargs ", "sudo ", "ssh h ",
    "9999999999999999999999", "{1..99999999}", "{a,b}", "$'\\x", "\u{0}", "#", "!", "@(", "coproc ", "time ",
    "docker run ", "git -c ", "1>&2", "<(", ">(", "select", "until", "while", ";;", "declare -n ", "trap ",
    "alias a=",
];

#[test]
fn twenty_thousand_odd_inputs_are_judged_quickly_and_without_a_panic() {
    let mut numbers = TestRng(0x9e37_79b9_7f4a_7c15);
    let mut slowest = (Duration::ZERO, String::new());
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..numbers.below(40) {
            text.push_str(PIECES[numbers.below(PIECES.len())]);
        }
        let start = Instant::now();
        let report = report(&text);
        let took = start.elapsed();
        assert!(["allow", "ask", "deny"].contains(&report.verdict));
        if took > slowest.0 {
            slowest = (took, text);
        }
    }
    // The limit is generous, because this is an unoptimized build on a shared machine. The test
    // looks for hangs.
    assert!(slowest.0 < Duration::from_secs(2), "{slowest:?}");
}

#[test]
fn long_and_deep_inputs_are_bounded() {
    let units = [
        "(", "{ ", "$(", "\"$(", "`", "${x:-", "$((", "[[ ( ", "if x; then ", "case a in b) ", "f() { ",
        "for a in b; do ", "<(", "a=(", "{a,", "a;", "a|", "a ", "a=$a$a;", "x() { x|x& };", "eval '",
        "<<E ", "$x", "*", "'", "\\", "bash -c \"", "$(echo ", "!", "{1..64}", "@(", "a&", "export A=$A;",
        "echo a >b;", "alias a=b;", "(a)", "x=1 ", "\n", "$[", "~", "${", "sudo ", "env ", "xargs ",
        "nohup ",
    ];
    for unit in units {
        for size in [512, 64 * 1024] {
            let text = unit.repeat(size / unit.len());
            let start = Instant::now();
            report(&text);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "{unit:?} x {size}: {took:?}");
        }
    }
}

#[test]
fn long_program_texts_are_bounded() {
    for unit in ["open(", "system(a,", "a=\"b\"\n", "Path(\"x\").unlink()\n", "for p in q: open(p)\n", "a.b."]
    {
        for interpreter in ["python3 -c", "perl -e", "node -e"] {
            let text = format!("{interpreter} '{}'", unit.repeat(64 * 1024 / unit.len()));
            let start = Instant::now();
            report(&text);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "{interpreter} {unit:?}: {took:?}");
        }
    }
}
