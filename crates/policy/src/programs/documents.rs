//! Typesetters, and other programs that turn documents into pages. Documents hold programs, which
//! these run without the right to write files unless an option gives it.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["groff", "troff", "nroff", "pic", "ditroff"]).asks(&[Flag(&["-U"]).triggers(UNSAFE)]),
    program(&[
        "tex", "latex", "pdftex", "pdflatex", "xetex", "xelatex", "luatex", "lualatex", "latexmk", "uplatex",
        "platex", "arara", "texi2dvi", "texi2pdf",
    ])
    .asks(&[
        Arg(&["-shell-escape", "--shell-escape", "-enable-write18", "--enable-write18"]).triggers(UNSAFE)
    ]),
    reader(&["gs", "ps2pdf", "ps2ascii", "eps2eps"])
        .files(&[writes(LastOperand)])
        .asks(&[Arg(&["-dNOSAFER", "-dDELAYSAFER", "--permit-file-*"]).triggers(UNSAFE)]),
    program(&["pandoc"]).files(&[writes(Values(&["-o", "--output"]))]),
];

const UNSAFE: &str = "unsafe-mode";
