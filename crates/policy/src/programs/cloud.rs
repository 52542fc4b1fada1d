//! Command lines of clouds, and tools that deploy to them.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["aws"]).asks(&[
        CHANGES,
        FORCES,
        ask("copy-out", All(&[Verb(&["s3 cp", "s3 sync", "s3 mv"]), LastOperandIs(&["s3://*"])])),
        verbs(&["* put-*"], "copy-out"),
        verbs(
            &[
                "* get-secret-value", "* get-session-token", "* assume-role", "* get-login-password",
                "* get-authorization-token", "* export-credentials", "configure get",
                "configure export-credentials",
            ],
            "secret-stores",
        ),
        on(&["* get-parameter*"], "secret-stores", Flag(&["--with-decryption"])),
    ]),
    program(&["gcloud"]).asks(&[
        CHANGES,
        ask(
            "copy-out",
            All(&[Verb(&["storage cp", "storage rsync", "storage mv"]), LastOperandIs(&["gs://*"])]),
        ),
        verbs(&["compute scp"], "copy-out"),
        ask("secret-stores", Operand(&["print-access-token", "print-identity-token"])),
        on(&["secrets"], "secret-stores", Operand(&["access"])),
    ]),
    program(&["az"]).asks(&[
        CHANGES,
        FORCES,
        ask("copy-out", Operand(&["upload", "upload-batch"])),
        ask("secret-stores", Operand(&["get-access-token", "list-keys"])),
        on(&["keyvault"], "secret-stores", All(&[Operand(&["secret"]), Operand(&["show"])])),
    ]),
    program(&["gsutil", "s3cmd", "b2"]).asks(&[
        CHANGES,
        FORCES,
        ask("copy-out", All(&[COPIES, LastOperandIs(&["*://*"])])),
    ]),
    program(&["mc"]).asks(&[CHANGES, FORCES, ask("copy-out", COPIES)]),
    program(&["s5cmd"]).asks(&[ask("copy-out", All(&[COPIES, LastOperandIs(&["*://*"])]))]),
    program(&["rclone"]).asks(&[
        CHANGES,
        FORCES,
        verbs(&["copy", "sync", "move", "copyto", "moveto", "rcat", "bisync", "serve"], "copy-out"),
    ]),
    program(&["doctl", "linode-cli", "oci", "ibmcloud", "hcloud", "scw"]).asks(&[CHANGES, FORCES]),
    program(&["terraform"]).reads_outside().asks(&[TERRAFORM]),
    program(&["tofu", "terragrunt"]).asks(&[TERRAFORM]),
    program(&["pulumi"]).asks(&[
        verbs(&["up", "destroy", "cancel", "import", "refresh"], CLOUD),
        ask(CLOUD, Operand(&["rm"])),
    ]),
    program(&["cdk", "serverless", "sls", "sam", "eb"])
        .asks(&[verbs(&["deploy", "destroy", "remove", "delete", "terminate", "bootstrap"], CLOUD)]),
    program(&["ansible"]).runs(&[Text(&["-a", "--args"])]).asks(&[PROVISIONS]),
    program(&["ansible-playbook", "packer"]).asks(&[PROVISIONS]),
    program(&["heroku"]).asks(&[DEPLOYS, verbs(&["config*", "auth:token"], "secret-stores")]),
    program(&["vercel", "netlify", "fly", "flyctl", "railway", "render", "firebase"]).asks(&[DEPLOYS]),
    program(&["wrangler", "supabase"]).asks(&[DEPLOYS, super::databases::LOSES_ROWS]),
];

const CLOUD: &str = "cloud";

/// Words that change something in an account or read its keys.
const CHANGES: Ask = ask(
    CLOUD,
    Any(&[
        Operand(&[
            "delete*", "remove*", "terminate*", "destroy*", "purge*", "put-*", "detach*", "revoke*", "stop*",
            "reset*", "disable*", "deregister*", "reboot*", "rollback*", "set-iam*", "attach-*",
            "create-access-key*", "update-*", "modify-*", "add-iam*", "authorize-*", "run-instances*",
            "import-key*", "invoke*", "send-command*", "schedule-key-deletion*", "start-session*",
            "get-secret*", "get-login-password*", "get-session-token*", "assume-role*", "access-secret*",
            "print-access-token*", "get-access-token*", "get-parameter*",
        ]),
        All(&[
            Operand(&["rb", "rm", "mv", "sync", "del", "deletefile", "move", "bisync", "ssh", "access"]),
            Any(&[Not(&Operand(&["versions"])), Operand(&["access"])]),
        ]),
    ]),
);

const FORCES: Ask = ask(CLOUD, Arg(&["--force"]));

const COPIES: When = Operand(&["cp", "rsync", "mv", "put", "sync", "mirror", "pipe", "upload-file"]);

const TERRAFORM: Ask = verbs(
    &[
        "destroy", "apply", "import", "taint", "untaint", "force-unlock", "run-all", "state rm", "state mv",
        "state push", "state replace-provider", "workspace delete",
    ],
    CLOUD,
);

const PROVISIONS: Ask = ask(CLOUD, Not(&Any(&[NoOperands, Verb(&["validate", "inspect", "fmt"])])));

const DEPLOYS: Ask = ask(
    CLOUD,
    Any(&[
        Flag(&["--prod"]),
        Operand(&[
            "rm", "remove", "delete", "destroy", "purge", "reset", "rollback", "prod", "restart", "kill",
            "detach", "unset", "scale", "suspend", "*:rm", "*:remove", "*:delete", "*:destroy", "*:purge",
            "*:reset", "*:rollback", "*:prod", "*:restart", "*:kill", "*:detach", "*:unset", "*:scale",
            "*:suspend",
        ]),
    ]),
);
