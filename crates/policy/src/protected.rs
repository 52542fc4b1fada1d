//! What the kernel keeps from commands without approval. The gate knows credentials and
//! start-up files from the same list, so that the two never differ.

use hermes_types::ProtectedClass;

use ProtectedClass::{
    CloudCredentials, ContainerEngine, DesktopSession, GitConfig, GitCredentials, GpgKeys, OtherCredentials,
    PackageTokens, SshAgent, SshKeys, StartupFiles, TerminalSessions,
};
use ProtectedKind::{Hidden, ReadOnly};

/// How a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectedKind {
    /// Its content can be neither read nor changed.
    Hidden,
    /// Its content can be read.
    ReadOnly,
}

/// A path that commands use only with an allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedPath {
    /// An absolute path, or one below the home directory that starts with `~/`. It may hold the
    /// patterns `*` and `?`, and the caller replaces `UID` by the number of the user.
    pub path: &'static str,
    pub class: ProtectedClass,
    pub kind: ProtectedKind,
}

/// Everything that is protected. A path may lie below another one.
pub fn protected_paths() -> impl Iterator<Item = ProtectedPath> {
    let sockets = SOCKETS.iter().map(|(class, paths)| (*class, Hidden, *paths));
    FILES
        .iter()
        .copied()
        .chain(sockets)
        .flat_map(|(class, kind, paths)| paths.iter().map(move |path| ProtectedPath { path, class, kind }))
}

/// The files and trees of one kind, without their home directory or the root.
pub(crate) fn protected_files(kind: ProtectedKind) -> impl Iterator<Item = &'static str> {
    let of_kind = FILES.iter().filter(move |(_, known, _)| *known == kind);
    of_kind.flat_map(|(_, _, paths)| {
        paths.iter().map(|path| path.strip_prefix("~/").unwrap_or(path).trim_start_matches('/'))
    })
}

const FILES: &[(ProtectedClass, ProtectedKind, &[&str])] = &[
    (SshKeys, Hidden, &["~/.ssh", "/etc/ssh/ssh_host_*_key"]),
    (GpgKeys, Hidden, &["~/.gnupg"]),
    (
        GitCredentials,
        Hidden,
        &[
            "~/.git-credentials", "~/.config/git/credentials", "~/.config/gh", "~/.config/hub",
            "~/.config/glab-cli", "~/.config/github-copilot",
        ],
    ),
    (
        PackageTokens,
        Hidden,
        &[
            "~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.cargo/credentials*", "~/.gem/credentials",
            "~/.local/share/gem/credentials", "~/.m2/settings.xml", "~/.m2/settings-security.xml",
            "~/.gradle/gradle.properties", "~/.composer/auth.json", "~/.config/composer/auth.json",
            "~/.nuget/NuGet/NuGet.Config", "~/.config/NuGet/NuGet.Config", "~/.hex/hex.config",
            "~/.config/pypoetry/auth.toml", "~/.config/hatch",
        ],
    ),
    (
        CloudCredentials,
        Hidden,
        &[
            "~/.aws", "~/.config/gcloud", "~/.azure", "~/.kube", "~/.oci",
            "~/.terraform.d/credentials.tfrc.json", "~/.terraformrc", "~/.boto", "~/.s3cfg",
            "~/.config/doctl", "~/.config/heroku", "~/.config/hcloud", "~/.config/flyctl", "~/.fly",
            "~/.config/rclone", "~/.config/linode-cli", "~/.config/scw", "~/.config/configstore",
            "~/.config/netlify", "~/.config/vercel", "~/.local/share/com.vercel.cli", "~/.wrangler",
            "~/.config/.wrangler", "~/.pulumi/credentials.json", "~/.databrickscfg", "~/.snowflake",
            "~/.aliyun", "~/.bluemix", "/etc/kubernetes", "/etc/rancher",
        ],
    ),
    (
        ContainerEngine,
        Hidden,
        &["~/.docker/config.json", "~/.docker/contexts", "~/.dockercfg", "~/.config/containers/auth.json"],
    ),
    (
        OtherCredentials,
        Hidden,
        &[
            "~/.netrc", "~/_netrc", "~/.authinfo*", "~/.pgpass", "~/.my.cnf", "~/.mylogin.cnf",
            "~/.vault-token", "~/.password-store", "~/.local/share/keyrings", "~/.local/share/kwalletd",
            "~/Library/Keychains", "~/.1password", "~/.config/op", "~/.config/Bitwarden*",
            "~/.config/keepassxc", "~/.config/age", "~/.config/sops", "~/.mozilla", "~/.thunderbird",
            "~/.config/google-chrome*", "~/.config/chromium", "~/.config/BraveSoftware",
            "~/.config/microsoft-edge", "~/.config/vivaldi", "~/.config/opera", "~/.librewolf",
            "~/snap/firefox", "~/snap/chromium", "~/.var/app", "~/.config/Slack", "~/.config/discord",
            "~/.config/Signal", "~/.local/share/TelegramDesktop", "~/.electrum", "~/.bitcoin", "~/.ethereum",
            "~/.monero", "~/.config/solana", "~/.bash_history", "~/.zsh_history", "~/.zhistory",
            "~/.local/share/fish/fish_history", "~/.sh_history", "~/.ash_history", "~/.python_history",
            "~/.node_repl_history", "~/.psql_history", "~/.mysql_history", "~/.sqlite_history",
            "~/.rediscli_history", "~/.lesshst", "~/.claude/.credentials.json", "~/.codex/auth.json",
            "~/.gemini/oauth_creds.json", "~/.config/msmtp", "~/.msmtprc", "~/.mbsyncrc", "~/.fetchmailrc",
            "~/.cache/keyring-*", "~/.smbcredentials", "~/.rhosts", "/etc/shadow*", "/etc/gshadow*",
            "/etc/sudoers*", "/etc/master.passwd", "/etc/security/opasswd", "/etc/letsencrypt/archive",
            "/etc/letsencrypt/accounts", "/etc/letsencrypt/live/*/privkey.pem", "/etc/ssl/private",
            "/etc/mysql/debian.cnf", "/etc/ipsec.secrets", "/etc/openvpn", "/etc/wireguard",
            "/etc/krb5.keytab", "/etc/NetworkManager/system-connections", "/run/secrets", "/var/run/secrets",
            "/var/lib/samba/private", "/var/lib/systemd/credential.secret",
            "/var/cache/debconf/passwords.dat",
        ],
    ),
    (
        GitConfig,
        ReadOnly,
        &["~/.gitconfig", "~/.config/git", "~/.gitattributes", "~/.git-templates", "/etc/gitconfig"],
    ),
    (SshKeys, ReadOnly, &["~/.ssh/authorized_keys", "~/.ssh/authorized_keys2", "~/.ssh/rc", "/etc/ssh"]),
    (
        StartupFiles,
        ReadOnly,
        &[
            "~/.bashrc",
            "~/.bash_profile",
            "~/.bash_login",
            "~/.bash_logout",
            "~/.bash_aliases",
            "~/.bash_completion",
            "~/.bashrc.d",
            "~/.profile",
            "~/.zshrc",
            "~/.zshenv",
            "~/.zprofile",
            "~/.zlogin",
            "~/.zlogout",
            "~/.cshrc",
            "~/.tcshrc",
            "~/.login",
            "~/.logout",
            "~/.kshrc",
            "~/.mkshrc",
            "~/.config/fish",
            "~/.config/zsh",
            "~/.config/powershell",
            "~/.oh-my-zsh",
            "~/.oh-my-bash",
            "~/.inputrc",
            "~/.xinitrc",
            "~/.xsession",
            "~/.xsessionrc",
            "~/.xprofile",
            "~/.Xresources",
            "~/.Xdefaults",
            "~/.pam_environment",
            "~/.config/environment.d",
            "~/.config/autostart",
            "~/.config/autostart-scripts",
            "~/.config/plasma-workspace",
            "~/.config/systemd",
            "~/.local/share/systemd",
            "~/.local/share/dbus-1",
            "~/.local/share/applications",
            "~/.config/sway",
            "~/.config/i3",
            "~/.config/hypr",
            "~/.config/awesome",
            "~/.config/openbox",
            "~/Library/LaunchAgents",
            "~/Library/LaunchDaemons",
            "~/.vim",
            "~/.vimrc",
            "~/.gvimrc",
            "~/.exrc",
            "~/.config/nvim",
            "~/.local/share/nvim/site",
            "~/.config/vim",
            "~/.emacs",
            "~/.emacs.d",
            "~/.config/emacs",
            "~/.nanorc",
            "~/.config/nano",
            "~/.config/helix",
            "~/.config/Code/User/settings.json",
            "~/.config/Code/User/tasks.json",
            "~/.tmux.conf",
            "~/.config/tmux",
            "~/.screenrc",
            "~/.config/alacritty",
            "~/.config/kitty",
            "~/.gdbinit",
            "~/.config/gdb",
            "~/.lldbinit",
            "~/.pythonrc",
            "~/.pythonrc.py",
            "~/.pdbrc",
            "~/.ipython/profile_*/startup",
            "~/.ipython/profile_*/*.py",
            "~/.jupyter",
            "~/.irbrc",
            "~/.pryrc",
            "~/.rdbgrc",
            "~/.Rprofile",
            "~/.Renviron",
            "~/.perldb",
            "~/.psqlrc",
            "~/.sqliterc",
            "~/.config/sqlite3",
            "~/.curlrc",
            "~/.config/curlrc",
            "~/.wgetrc",
            "~/.lesskey",
            "~/.config/lesskey",
            "~/.ackrc",
            "~/.ripgreprc",
            "~/.hgrc",
            "~/.config/hg",
            "~/.subversion",
            "~/.config/jj",
            "~/.jjconfig.toml",
            "~/.config/lazygit",
            "~/.config/pip",
            "~/.pip",
            "~/.config/uv",
            "~/.condarc",
            "~/.mambarc",
            "~/.bazelrc",
            "~/.gemrc",
            "~/.bundle/config",
            "~/.cargo/config",
            "~/.cargo/config.toml",
            "~/.cargo/env*",
            "~/.gradle/init.gradle*",
            "~/.gradle/init.d",
            "~/.mavenrc",
            "~/.config/direnv",
            "~/.config/mise",
            "~/.config/npm",
            "~/.config/pnpm",
            "~/.yarnrc",
            "~/.docker/cli-plugins",
            "~/.docker/daemon.json",
            "~/.config/containers/*.conf",
            "~/.ansible.cfg",
            "~/.forward",
            "~/.procmailrc",
            "~/.mailcap",
            "~/.mailrc",
            "~/.shosts",
            "~/.k5login",
            "~/.envrc",
            "~/.direnvrc",
            "~/.config/bash_completion",
            "~/.local/share/bash-completion",
            "~/.ipython/profile_default/startup",
            "~/.claude/settings.json",
            "~/.codex/config.toml",
            "~/.cursor/mcp.json",
            "~/.wezterm.lua",
            "~/.ideavimrc",
            "~/.gdbearlyinit",
            "~/.ghci",
            "~/.julia/config",
            "~/.sbclrc",
            "~/.mongorc.js",
            "~/.mongoshrc.js",
            "~/.sbt/1.0/plugins",
            "~/.config/nix",
            "~/.local/share/nautilus/scripts",
            "~/.bunfig.toml",
            "~/.cargo/env",
            "~/.nvm/nvm.sh",
            "~/.asdf/asdf.sh",
            "~/.sdkman/bin",
            "~/.gradle/init.gradle",
            "~/.config/containers/containers.conf",
            "~/.config/containers/storage.conf",
            "~/.config/mpv/scripts",
            "~/.config/ranger",
            "~/.config/mutt",
            "~/.muttrc",
            "~/.local/lib/python*/site-packages/*.pth",
            "~/.local/lib/python*/site-packages/sitecustomize.py",
            "~/.local/lib/python*/site-packages/usercustomize.py",
            "/var/spool/cron",
            "/var/spool/at",
            "/etc/crontab",
            "/etc/anacrontab",
            "/etc/cron.d",
            "/etc/cron.hourly",
            "/etc/cron.daily",
            "/etc/cron.weekly",
            "/etc/cron.monthly",
            "/etc/profile",
            "/etc/profile.d",
            "/etc/bash.bashrc",
            "/etc/bashrc",
            "/etc/bash_completion.d",
            "/etc/zsh",
            "/etc/zshrc",
            "/etc/zshenv",
            "/etc/fish",
            "/etc/environment",
            "/etc/environment.d",
            "/etc/inputrc",
            "/etc/ld.so.preload",
            "/etc/ld.so.conf",
            "/etc/ld.so.conf.d",
            "/etc/rc.local",
            "/etc/init.d",
            "/etc/inittab",
            "/etc/pam.d",
            "/etc/security",
            "/etc/udev/rules.d",
            "/lib/udev/rules.d",
            "/etc/systemd",
            "/lib/systemd",
            "/usr/lib/systemd",
            "/usr/local/lib/systemd",
            "/etc/dbus-1",
            "/etc/xdg",
            "/etc/X11",
            "/etc/update-motd.d",
            "/etc/vim",
            "/etc/logrotate.d",
            "/etc/apt/apt.conf.d",
            "/etc/dpkg/dpkg.cfg.d",
            "/etc/kernel",
            "/etc/modprobe.d",
            "/etc/modules-load.d",
            "/etc/sysctl.d",
            "/etc/binfmt.d",
            "/etc/tmpfiles.d",
            "/etc/NetworkManager/dispatcher.d",
            "/etc/network/if-up.d",
            "/etc/passwd",
            "/etc/group",
            "/etc/docker",
            "/etc/npmrc",
            "/etc/pip.conf",
            "/etc/sudoers.d",
        ],
    ),
];

/// Sockets through which something outside does what a command asks.
const SOCKETS: &[(ProtectedClass, &[&str])] = &[
    (
        ContainerEngine,
        &[
            "/run/docker.sock", "/var/run/docker.sock", "/run/docker", "/run/podman", "/var/run/podman",
            "/run/containerd", "/run/crio", "/run/buildkit", "/run/k3s", "/run/libvirt", "/run/lxd.socket",
            "/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
            "/run/user/UID/docker.sock", "/run/user/UID/docker", "/run/user/UID/podman",
            "/run/user/UID/containerd*", "/run/user/UID/buildkit*", "/run/user/UID/libvirt", "~/.docker/run",
            "~/.docker/desktop", "~/.colima", "~/.rd", "~/.orbstack/run", "~/.lima",
        ],
    ),
    (
        SshAgent,
        &[
            "/tmp/ssh-*", "/run/user/UID/ssh-agent*", "/run/user/UID/openssh_agent", "/run/user/UID/keyring",
            "/run/user/UID/gcr", "~/.1password/agent.sock", "~/.bitwarden-ssh-agent.sock",
        ],
    ),
    (GpgKeys, &["/run/user/UID/gnupg", "/tmp/gpg-*"]),
    (
        DesktopSession,
        &[
            "/run/dbus", "/var/run/dbus", "/run/user/UID/bus", "/run/user/UID/dbus-1", "/tmp/dbus-*",
            "/run/user/UID/systemd", "/run/systemd/private", "/run/user/UID/wayland-*",
            "/run/user/UID/sway-ipc.*", "/run/user/UID/i3", "/run/user/UID/hypr", "/tmp/.X11-unix",
            "/run/user/UID/at-spi", "/run/user/UID/pipewire-*", "/run/user/UID/pulse", "/run/user/UID/emacs",
            "/tmp/emacs*", "/run/user/UID/nvim.*", "/run/user/UID/vscode-*", "/run/user/UID/kdeinit*",
            "/run/user/UID/xauth_*", "/run/user/UID/.mutter-Xwaylandauth*", "/run/user/UID/ICEauthority",
            "/tmp/.ICE-unix", "~/.Xauthority", "~/.ICEauthority", "/run/snapd.socket",
            "/run/snapd-snap.socket", "/run/udev/control",
        ],
    ),
    (
        TerminalSessions,
        &[
            "/tmp/tmux-*", "/run/tmux", "/run/user/UID/tmux*", "/run/screen", "/var/run/screen", "~/.screen",
            "/tmp/screens", "/run/user/UID/zellij", "/tmp/zellij-*", "/run/user/UID/kitty-*",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_paths_are_absolute_and_listed_once() {
        let mut paths: Vec<&str> = protected_paths().map(|protected| protected.path).collect();
        for path in &paths {
            let rest = path.strip_prefix('~').unwrap_or(path);
            assert!(rest.starts_with('/') && !rest.ends_with('/'), "{path}");
        }
        let all = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), all);
    }

    #[test]
    fn what_package_managers_write_every_day_is_not_protected() {
        let daily = [
            "~/.cargo/registry", "~/.cargo/git", "~/.cargo/bin", "~/.cache/pip", "~/.npm", "~/.local/lib",
            "~/.local/bin", "~/go/pkg", "~/.rustup", "~/.local/share/uv", "~/.local/share/pnpm",
            "~/.gradle/caches", "~/.m2/repository", "~/.docker/buildx",
        ];
        for protected in protected_paths() {
            for path in daily {
                let below = path.strip_prefix(protected.path).is_some_and(|rest| rest.starts_with('/'));
                assert!(path != protected.path && !below, "{path} by {}", protected.path);
            }
        }
    }
}
