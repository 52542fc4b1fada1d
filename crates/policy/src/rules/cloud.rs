//! Changing cloud accounts and publishing to everybody.

use super::{On, Rule, View};

pub(super) const RULES: &[Rule] = &[
    Rule::ask(
        "cloud",
        "deletes or changes things in a cloud account",
        On::Programs(&[
            "aws", "gcloud", "az", "gsutil", "doctl", "heroku", "fly", "flyctl", "vercel", "netlify",
            "terraform", "tofu", "pulumi", "cdk", "serverless", "sls", "linode-cli", "oci", "ibmcloud",
            "hcloud", "scw", "ansible", "ansible-playbook", "packer", "sam", "eb", "wrangler", "railway",
            "render", "supabase", "firebase", "s3cmd", "mc", "b2", "rclone", "terragrunt",
        ]),
        cloud,
    )
    .examples(
        &[
            "aws s3 rb s3://b --force", "terraform destroy", "az group delete -n p --yes",
            "gcloud compute instances delete x", "terraform apply -auto-approve",
        ],
        &["aws s3 ls", "terraform plan", "gcloud projects list", "az account show", "terraform fmt"],
    ),
    Rule::ask(
        "publish",
        "publishes to everybody, or deletes what was published",
        On::Programs(&[
            "npm", "yarn", "pnpm", "cargo", "twine", "gem", "gh", "glab", "poetry", "uv", "flit", "hatch",
            "dart", "flutter", "mvn", "gradle", "nuget", "dotnet", "docker", "pod", "vsce", "ovsx",
            "clojars", "lerna", "bun", "jsr", "goreleaser", "semantic-release", "hub", "pdm", "helm",
            "stack", "cabal", "mix",
        ]),
        publish,
    )
    .examples(
        &[
            "npm publish", "cargo publish", "twine upload dist/*", "gh release delete v1 -y",
            "gh repo delete x --yes", "npm unpublish x",
        ],
        &["cargo publish --dry-run", "npm pack", "gh pr list", "gh release list", "cargo package"],
    ),
];

fn cloud(view: &View<'_>) -> bool {
    let words: Vec<String> =
        view.operands(&[]).into_iter().map(|word| word.prefix().to_lowercase()).collect();
    if view.asks_for_help()
        || view.args().iter().any(|word| {
            matches!(
                word.prefix(),
                "--dryrun" | "--dry-run" | "--check" | "--syntax-check" | "--list-tasks" | "--list-hosts"
            )
        })
    {
        return false;
    }
    let verb = words.first().map(String::as_str).unwrap_or_default();
    match view.name() {
        "terraform" | "tofu" | "terragrunt" => {
            matches!(verb, "destroy" | "apply" | "import" | "taint" | "untaint" | "force-unlock" | "run-all")
                || (verb == "state"
                    && words.get(1).is_some_and(|word| {
                        matches!(word.as_str(), "rm" | "mv" | "push" | "replace-provider")
                    }))
                || (verb == "workspace" && words.get(1).is_some_and(|word| word == "delete"))
        }
        "pulumi" => {
            matches!(verb, "up" | "destroy" | "cancel" | "import" | "refresh")
                || words.contains(&"rm".to_owned())
        }
        "cdk" | "serverless" | "sls" | "sam" | "eb" => {
            matches!(verb, "deploy" | "destroy" | "remove" | "delete" | "terminate" | "bootstrap")
        }
        "ansible" | "ansible-playbook" | "packer" => !matches!(verb, "validate" | "inspect" | "fmt" | ""),
        "vercel" | "netlify" | "fly" | "flyctl" | "wrangler" | "railway" | "render" | "firebase"
        | "supabase" | "heroku" => {
            words.iter().any(|word| {
                let last = word.rsplit(':').next().unwrap_or_default();
                matches!(
                    last,
                    "rm" | "remove"
                        | "delete"
                        | "destroy"
                        | "purge"
                        | "reset"
                        | "rollback"
                        | "prod"
                        | "restart"
                        | "kill"
                        | "detach"
                        | "unset"
                        | "scale"
                        | "suspend"
                )
            }) || view.has(&["--prod"])
        }
        _ => {
            words.iter().any(|word| {
                [
                    "delete", "remove", "terminate", "destroy", "purge", "put-", "detach", "revoke", "stop",
                    "reset", "disable", "deregister", "reboot", "rollback", "set-iam", "attach-",
                    "create-access-key", "update-", "modify-", "add-iam", "authorize-", "run-instances",
                    "import-key", "invoke", "send-command", "schedule-key-deletion", "start-session",
                    "get-secret", "get-login-password", "get-session-token", "assume-role", "access-secret",
                    "print-access-token", "get-access-token", "get-parameter",
                ]
                .iter()
                .any(|start| word.starts_with(start))
            }) || words.iter().any(|word| {
                matches!(
                    word.as_str(),
                    "rb" | "rm"
                        | "mv"
                        | "sync"
                        | "delete"
                        | "del"
                        | "purge"
                        | "deletefile"
                        | "move"
                        | "bisync"
                        | "ssh"
                        | "access"
                        | "versions"
                )
            }) && (!words.contains(&"versions".to_owned()) || words.contains(&"access".to_owned()))
                || view.args().iter().any(|word| word.prefix() == "--force" && view.name() != "gcloud")
        }
    }
}

fn publish(view: &View<'_>) -> bool {
    let words = view.words();
    if view.args().iter().any(|word| {
        word.prefix().starts_with("--dry-run") || word.prefix() == "--snapshot" || word.prefix() == "--check"
    }) || view.asks_for_help()
    {
        return false;
    }
    let first = words.first().copied().unwrap_or_default();
    let second = words.get(1).copied().unwrap_or_default();
    match view.name() {
        "npm" | "yarn" | "pnpm" | "bun" => {
            matches!(
                first,
                "publish"
                    | "unpublish"
                    | "deprecate"
                    | "owner"
                    | "access"
                    | "dist-tag"
                    | "token"
                    | "adduser"
                    | "login"
            ) && !matches!(second, "ls" | "list" | "info")
                || (first == "npm" && second == "publish")
        }
        "cargo" => matches!(first, "publish" | "yank" | "owner" | "login") && !view.has(&["--list", "-l"]),
        "twine" => first == "upload",
        "gem" => matches!(first, "push" | "yank" | "owner"),
        "gh" | "glab" | "hub" => {
            matches!(
                second,
                "delete"
                    | "edit"
                    | "archive"
                    | "transfer"
                    | "rename"
                    | "merge"
                    | "close"
                    | "create"
                    | "upload"
                    | "set"
                    | "remove"
                    | "revoke"
                    | "lock"
                    | "add"
                    | "disable"
                    | "enable"
                    | "run"
                    | "cancel"
                    | "rerun"
                    | "fork"
                    | "token"
                    | "login"
                    | "logout"
                    | "refresh"
                    | "setup-git"
                    | "publish"
                    | "approve"
                    | "review"
                    | "import"
                    | "sync"
                    | "install"
                    | "comment"
            ) && !(first == "pr"
                && matches!(second, "create" | "edit" | "checkout" | "review" | "comment" | "close"))
                && !(first == "issue" && matches!(second, "create" | "edit" | "close" | "comment"))
                && !(matches!(first, "run" | "workflow") && matches!(second, "rerun" | "run" | "cancel"))
                && !(first == "repo" && matches!(second, "fork" | "sync" | "create"))
                && !(matches!(first, "alias" | "config" | "label") && second != "delete" && second != "set")
                && !(first == "label" && second == "create")
                || (first == "api"
                    && view
                        .values(&["-X", "--method"])
                        .iter()
                        .any(|method| !matches!(method.prefix().to_uppercase().as_str(), "GET")))
        }
        "poetry" | "uv" | "flit" | "hatch" | "pdm" => first == "publish",
        "dart" | "flutter" => words.contains(&"publish"),
        "mvn" => words.iter().any(|word| word.starts_with("deploy") || word.starts_with("release:")),
        "gradle" => words.iter().any(|word| word.starts_with("publish") && !word.contains("MavenLocal")),
        "nuget" => matches!(first, "push" | "delete"),
        "dotnet" => first == "nuget" && matches!(second, "push" | "delete"),
        "pod" => first == "trunk",
        "vsce" | "ovsx" => matches!(first, "publish" | "unpublish"),
        "jsr" | "lerna" => first == "publish",
        "goreleaser" => matches!(first, "release" | ""),
        "semantic-release" => true,
        "helm" => first == "push",
        "stack" | "cabal" => first == "upload",
        "mix" => first == "hex.publish",
        "docker" => first == "logout",
        _ => false,
    }
}
