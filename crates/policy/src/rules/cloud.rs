//! Changing cloud accounts and publishing.

use super::{Rule, Trigger};
use crate::programs::When::{Any, Arg, Help};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("cloud", "deletes or changes things in a cloud account", Trigger::Programs)
        .unless(Any(&[
            Help,
            Arg(&["--dryrun", "--dry-run", "--check", "--syntax-check", "--list-tasks", "--list-hosts"]),
        ]))
        .examples(
            &[
                "aws s3 rb s3://b --force", "terraform destroy", "az group delete -n p --yes",
                "gcloud compute instances delete x", "terraform apply -auto-approve",
            ],
            &["aws s3 ls", "terraform plan", "gcloud projects list", "az account show", "terraform fmt"],
        ),
    Rule::ask("publish", "publishes packages or releases, or deletes published ones", Trigger::Programs)
        .unless(Any(&[Help, Arg(&["--dry-run*", "--snapshot", "--check"])]))
        .examples(
            &[
                "npm publish", "cargo publish", "twine upload dist/*", "gh release delete v1 -y",
                "gh repo delete x --yes", "npm unpublish x",
            ],
            &["cargo publish --dry-run", "npm pack", "gh pr list", "gh release list", "cargo package"],
        ),
];
