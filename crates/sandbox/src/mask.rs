//! Paths that are masked by default: secrets that no command needs.

use std::ffi::OsString;
use std::path::Path;

use hermes_types::MountAccess;

use crate::jail::JailMount;

/// System secrets, and data and sockets of engines that grant access to the whole machine. All of
/// `/run` is masked: it contains sockets of engines, buses, agents and user sessions.
const SYSTEM_PATHS: &[&str] = &[
    "/run", "/var/run", "/boot", "/lost+found", "/etc/shadow", "/etc/shadow-", "/etc/gshadow",
    "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/security/opasswd", "/etc/ssl/private",
    "/etc/pki/tls/private", "/etc/ssh", "/etc/NetworkManager/system-connections", "/etc/wireguard",
    "/etc/ppp", "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/krb5.keytab", "/var/lib/docker",
    "/var/lib/containers", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/lxd",
    "/var/lib/incus", "/var/lib/libvirt", "/var/lib/cloud", "/var/lib/sss", "/var/lib/postgresql",
    "/var/lib/mysql", "/var/spool", "/var/mail", "/var/log", "/var/backups", "/var/crash", "/var/snap",
];

/// Parent directories of homes. All homes are masked except that of the jail's user.
const HOME_PARENTS: &[&str] = &["/home", "/root", "/var/home", "/export/home"];

/// Below a home: keys, tokens, passwords, and profiles of browsers and e-mail programs.
const HOME_CREDENTIALS: &[&str] = &[
    ".ssh", ".aws", ".azure", ".oci", ".boto", ".config/gcloud", ".config/doctl", ".config/hcloud",
    ".config/gh", ".config/glab-cli", ".config/hub", ".config/rclone", ".config/op", ".config/containers",
    ".config/sops", ".config/age", ".config/git/credentials", ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
    ".config/Bitwarden", ".config/Signal", ".config/discord", ".config/Slack", ".config/keepassxc",
    ".local/share/keyrings", ".local/share/kwalletd", ".local/share/containers", ".mozilla", ".thunderbird",
    ".var/app", ".snap", "snap", ".kube", ".minikube", ".docker", ".gnupg", ".password-store", ".pki",
    ".vault-token", ".terraform.d", ".terraformrc", ".pulumi", ".netrc", ".git-credentials", ".pgpass",
    ".my.cnf", ".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials", ".cargo/credentials",
    ".cargo/credentials.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".nuget/NuGet",
    ".composer/auth.json", ".huggingface", ".cache/huggingface/token", ".openai", ".anthropic", ".claude",
    ".codex", ".gemini", ".modal.toml", ".daytona", ".bash_history", ".zsh_history", ".python_history",
    ".node_repl_history", ".psql_history", ".mysql_history", ".local/share/fish/fish_history", ".Xauthority",
    ".ICEauthority", ".dbus", ".hermes", ".colima", ".lima", ".rd", ".orbstack", ".1password",
    ".local/share/docker", ".emacs.d/server", ".config/emacs/server",
];

/// The masked paths for a user with this home, and the bind mounts that make the home itself
/// visible again.
pub(crate) fn default_masks(home: &Path) -> (Vec<OsString>, Vec<JailMount>) {
    let mut masked: Vec<OsString> = SYSTEM_PATHS.iter().map(OsString::from).collect();
    let mut shown = Vec::new();
    for homes in HOME_PARENTS.iter().map(Path::new).filter(|homes| *homes != home) {
        masked.push(homes.into());
        if home.starts_with(homes) && home.exists() {
            let (source, target) = (home.into(), home.into());
            shown.push(JailMount { source, target, access: MountAccess::ReadOnly });
        }
    }
    masked.extend(HOME_CREDENTIALS.iter().map(|name| home.join(name).into()));
    (masked, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_home_except_the_own_one_is_masked() {
        let (masked, shown) = default_masks(Path::new("/root"));
        let hidden = |path: &str| masked.contains(&OsString::from(path));
        assert_eq!(
            ["/home", "/root", "/root/.ssh", "/root/.config/gcloud", "/run"].map(hidden),
            [true, false, true, true, true]
        );
        assert_eq!(shown, []);
    }
}
