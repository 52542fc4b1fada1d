//! What no command needs and every thief looks for.

use std::path::{Path, PathBuf};

use crate::jail::{Access, Bind, Jail};

/// Below the root: secrets of the system, and the data and sockets of engines that would hand out the whole machine.
/// `/run` goes whole: it holds the sockets of engines, buses, agents and users' sessions, whatever their names are.
const SYSTEM: &[&str] = &[
    "/run",
    "/var/run",
    "/boot",
    "/lost+found",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/ssh",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/ppp",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/docker",
    "/etc/krb5.keytab",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/lxd",
    "/var/lib/incus",
    "/var/lib/libvirt",
    "/var/lib/cloud",
    "/var/lib/sss",
    "/var/lib/postgresql",
    "/var/lib/mysql",
    "/var/spool",
    "/var/mail",
    "/var/log",
    "/var/backups",
    "/var/crash",
];

/// Where homes are kept. All are hidden but the one of the person the jail works for.
const HOMES: &[&str] = &["/home", "/root", "/var/home", "/export/home"];

/// Below a home: keys, tokens, passwords, and the profiles of browsers and mail programs.
const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".oci",
    ".boto",
    ".config/gcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/rclone",
    ".config/op",
    ".config/containers",
    ".config/sops",
    ".config/age",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".config/Bitwarden",
    ".config/Signal",
    ".config/discord",
    ".config/Slack",
    ".config/keepassxc",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/containers",
    ".mozilla",
    ".thunderbird",
    ".var/app",
    ".snap",
    "snap",
    ".kube",
    ".minikube",
    ".docker",
    ".gnupg",
    ".password-store",
    ".pki",
    ".vault-token",
    ".terraform.d",
    ".terraformrc",
    ".pulumi",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".gem/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet",
    ".composer/auth.json",
    ".huggingface",
    ".cache/huggingface/token",
    ".openai",
    ".anthropic",
    ".claude",
    ".codex",
    ".gemini",
    ".modal.toml",
    ".daytona",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".local/share/fish/fish_history",
    ".Xauthority",
    ".ICEauthority",
    ".dbus",
    ".hermes",
];

impl Jail {
    /// Hides what no command needs: secrets of the system, sockets of engines and sessions, other people's homes, and
    /// the credentials in `home`. The rest of `home` stays readable, because people keep their tools there.
    #[must_use]
    pub fn mask_usual(mut self, home: &Path) -> Self {
        self.masked.extend(SYSTEM.iter().map(PathBuf::from));
        for homes in HOMES.iter().map(Path::new).filter(|homes| *homes != home) {
            self.masked.push(homes.to_path_buf());
            if home.starts_with(homes) && home.exists() {
                let (source, target) = (home.to_path_buf(), home.to_path_buf());
                self.binds.push(Bind { source, target, access: Access::ReadOnly });
            }
        }
        self.masked.extend(CREDENTIALS.iter().map(|name| home.join(name)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_home_but_ones_own_is_hidden() {
        let jail = Jail::new("/bin/true").mask_usual(Path::new("/root"));
        let hidden = |path: &str| jail.masked.contains(&PathBuf::from(path));
        assert_eq!(
            ["/home", "/root", "/root/.ssh", "/root/.config/gcloud", "/run"].map(hidden),
            [true, false, true, true, true]
        );
    }
}
