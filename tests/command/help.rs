//! What the command says of itself and of bad settings: golden output, which people read. `TRYCMD=overwrite` writes it anew.

#[test]
fn help_and_checks_read_as_they_were_approved() {
    let cases = trycmd::TestCases::new();
    cases.register_bin("outpost", std::path::Path::new(env!("CARGO_BIN_EXE_outpost")));
    cases
        .env("COLUMNS", "100")
        .env("HOME", "/home/you")
        .env("XDG_STATE_HOME", "")
        .env("DEVIN_API_TOKEN", "cog_x");
    cases.case("tests/command/help/*.md");
}
