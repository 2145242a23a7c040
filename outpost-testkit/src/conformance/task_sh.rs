use std::fmt::Write as _;

use super::task::{Act, End, Expectation, Task};

impl Task {
    /// The task as a script for `/bin/sh`. `probe` is a command that succeeds when the outside can be reached; it is run by
    /// [`Expectation::Offline`] only.
    #[must_use]
    pub fn to_sh(&self, probe: &str) -> String {
        let mut script = "#!/bin/sh\n".to_owned();
        let mut code = Self::FIRST_FAILURE;
        let mut mark = "outpost-suite".to_owned();
        for act in &self.acts {
            match act {
                Act::Expect(expectation) => {
                    let check = expectation.to_sh(probe);
                    let _ = writeln!(script, "{check} || exit {code}");
                    code += 1;
                }
                Act::Mark { mark: new } => mark.clone_from(new),
                act => script.push_str(&act.to_sh()),
            }
        }
        let _ = match self.end {
            End::Exit(code) => writeln!(script, "exit {code}"),
            End::Stay => writeln!(script, "exec sh -c {} {}", quote(IDLE), quote(&mark)),
        };
        script
    }
}

const IDLE: &str = "while :; do sleep 1; done";

impl Act {
    fn to_sh(&self) -> String {
        match self {
            Self::Write { path, text } => {
                format!(
                    "mkdir -p \"$(dirname {0})\" && printf %s {1} >{0} || exit 99\n",
                    quote(path),
                    quote(text)
                )
            }
            Self::Chmod { path, mode } => format!("chmod {mode:o} {} || exit 99\n", quote(path)),
            Self::Symlink { path, target } => {
                format!("ln -s {} {} || exit 99\n", quote(target), quote(path))
            }
            Self::HardLink { path, target } => {
                format!("ln {} {} || exit 99\n", quote(target), quote(path))
            }
            Self::MakeDir { path } => format!("mkdir -p {} || exit 99\n", quote(path)),
            Self::IgnoreTerm => "trap '' TERM\n".to_owned(),
            Self::Spawn { mark } => {
                let start = format!("sh -c {} {} </dev/null >/dev/null 2>&1 &", quote(IDLE), quote(mark));
                format!("if command -v setsid >/dev/null 2>&1; then setsid {start}\nelse {start}\nfi\n")
            }
            Self::Mark { .. } | Self::Expect(_) => String::new(),
        }
    }
}

impl Expectation {
    fn to_sh(&self, probe: &str) -> String {
        match self {
            Self::File { path, text } => format!("test \"$(cat {})\" = {}", quote(path), quote(text)),
            Self::Absent { path } => format!("! test -e {0} && ! test -L {0}", quote(path)),
            Self::Mode { path, mode } => {
                format!("test \"$(ls -ld {} | cut -c2-10)\" = {}", quote(path), as_ls_shows(*mode))
            }
            Self::Symlink { path, target } => {
                format!("test \"$(readlink {})\" = {}", quote(path), quote(target))
            }
            Self::SameFile { path, other } => format!("test {} -ef {}", quote(path), quote(other)),
            Self::EmptyDir { path } => format!("test -d {0} && test -z \"$(ls -A {0})\"", quote(path)),
            Self::Env { name, value } => format!("test \"${{{name}-}}\" = {}", quote_cut(value)),
            Self::EnvOnly { names } => {
                let allowed = names.iter().map(String::as_str).chain(Task::SHELL_VARIABLES);
                let allowed = allowed.map(|name| format!(" -e {}", quote(name))).collect::<String>();
                format!("! env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p' | grep -qvxF{allowed}")
            }
            Self::NoFileHolds { text } => format!("! grep -rqF -e {} . 2>/dev/null", quote_cut(text)),
            Self::Offline => format!("! {{ {probe}\n}} >/dev/null 2>&1"),
        }
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// One word for the shell, whose halves stand apart in the script.
fn quote_cut(text: &str) -> String {
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (left, right) = text.split_at(middle);
    format!("{}{}", quote(left), quote(right))
}

/// The permission bits as `ls -l` writes them.
fn as_ls_shows(mode: u32) -> String {
    (0..9).map(|bit| if mode & (0o400 >> bit) == 0 { '-' } else { ['r', 'w', 'x'][bit % 3] }).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs a task's script by the real shell (lesson 58) in a directory of its own, with `VALUE=it's` as environment.
    fn run(task: &Task, dir: &std::path::Path) -> Option<i32> {
        let script = dir.join("../script.sh");
        std::fs::write(&script, task.to_sh("false")).unwrap();
        let status = Command::new("/bin/sh")
            .arg(&script)
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("VALUE", "it's")
            .stdin(Stdio::null())
            .status()
            .unwrap();
        status.code()
    }

    fn in_a_directory(test: impl FnOnce(&std::path::Path)) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("work");
        std::fs::create_dir(&dir).unwrap();
        test(&dir);
    }

    fn furnished() -> Task {
        Task::exit(7)
            .write("a/b", "it's $HOME")
            .act(Act::Chmod { path: "a/b", mode: 0o750 })
            .act(Act::Symlink { path: "link", target: "a/b" })
            .act(Act::HardLink { path: "hard", target: "a/b" })
            .act(Act::MakeDir { path: "empty" })
    }

    fn everything_that_holds() -> Vec<Expectation> {
        vec![
            Expectation::File { path: "a/b", text: "it's $HOME".into() },
            Expectation::Absent { path: "nothing" },
            Expectation::Mode { path: "a/b", mode: 0o750 },
            Expectation::Symlink { path: "link", target: "a/b" },
            Expectation::SameFile { path: "hard", other: "a/b" },
            Expectation::EmptyDir { path: "empty" },
            Expectation::Env { name: "VALUE".into(), value: "it's".into() },
            Expectation::EnvOnly { names: vec!["PATH".into(), "VALUE".into()] },
            Expectation::NoFileHolds { text: "sentinel".into() },
            Expectation::Offline,
        ]
    }

    #[test]
    fn a_real_shell_does_what_the_task_says() {
        in_a_directory(|dir| {
            let task = everything_that_holds().into_iter().fold(furnished(), Task::expect);
            let code = run(&task, dir);
            assert_eq!(task.explain(code), Ok(()));
            assert_eq!(code, Some(7));
        });
    }

    #[test]
    fn every_expectation_can_fail_and_says_which() {
        let wrong = [
            Expectation::File { path: "a/b", text: "other".into() },
            Expectation::File { path: "nothing", text: "other".into() },
            Expectation::Absent { path: "link" },
            Expectation::Mode { path: "a/b", mode: 0o755 },
            Expectation::Symlink { path: "link", target: "a" },
            Expectation::SameFile { path: "hard", other: "empty" },
            Expectation::EmptyDir { path: "a" },
            Expectation::EmptyDir { path: "nothing" },
            Expectation::Env { name: "VALUE".into(), value: "its".into() },
            Expectation::EnvOnly { names: vec!["PATH".into()] },
            Expectation::NoFileHolds { text: "$HOME".into() },
        ];
        for expectation in wrong {
            in_a_directory(|dir| {
                let task = furnished()
                    .expect(Expectation::EmptyDir { path: "empty" })
                    .expect(expectation.clone())
                    .expect(Expectation::EmptyDir { path: "empty" });
                assert_eq!(task.explain(run(&task, dir)), Err(super::super::CheckFailed(expectation)));
            });
        }
    }

    #[test]
    fn a_value_that_is_looked_for_is_not_in_the_script() {
        let script = Task::stay()
            .expect(Expectation::Env { name: "A".into(), value: "sentinel".into() })
            .expect(Expectation::NoFileHolds { text: "sentinel".into() })
            .to_sh("false");
        assert!(!script.contains("sentinel"), "{script}");
    }
}
