//! Command lines of clouds, and tools that deploy to them.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["aws"]).files(&[writes(LastOperand).when(Verb(&["s3 cp", "s3 sync", "s3 mv"]))]).asks(&[
        CHANGES,
        FORCES,
        All(&[Verb(&["s3 cp", "s3 sync", "s3 mv"]), LastOperandIs(&["s3://*"])]).triggers("copy-out"),
        Verb(&["* put-*"]).triggers("copy-out"),
        Verb(&[
            "* get-secret-value", "* get-session-token", "* assume-role", "* get-login-password",
            "* get-authorization-token", "* export-credentials", "configure get",
            "configure export-credentials",
        ])
        .triggers("secret-stores"),
        Flag(&["--with-decryption"]).triggers("secret-stores").on(&["* get-parameter*"]),
    ]),
    program(&["gcloud"]).asks(&[
        CHANGES,
        All(&[Verb(&["storage cp", "storage rsync", "storage mv"]), LastOperandIs(&["gs://*"])])
            .triggers("copy-out"),
        Verb(&["compute scp"]).triggers("copy-out"),
        Operand(&["print-access-token", "print-identity-token"]).triggers("secret-stores"),
        Operand(&["access"]).triggers("secret-stores").on(&["secrets"]),
    ]),
    program(&["az"]).asks(&[
        CHANGES,
        FORCES,
        Operand(&["upload", "upload-batch"]).triggers("copy-out"),
        Operand(&["get-access-token", "list-keys"]).triggers("secret-stores"),
        All(&[Operand(&["secret"]), Operand(&["show"])]).triggers("secret-stores").on(&["keyvault"]),
    ]),
    program(&["gsutil", "s3cmd", "b2"]).files(&[writes(LastOperand).when(COPIES)]).asks(&[
        CHANGES,
        FORCES,
        All(&[COPIES, LastOperandIs(&["*://*"])]).triggers("copy-out"),
    ]),
    program(&["mc"]).asks(&[CHANGES, FORCES, COPIES.triggers("copy-out")]),
    program(&["s5cmd"]).asks(&[All(&[COPIES, LastOperandIs(&["*://*"])]).triggers("copy-out")]),
    program(&["rclone"]).asks(&[
        CHANGES,
        FORCES,
        Verb(&["copy", "sync", "move", "copyto", "moveto", "rcat", "bisync", "serve"]).triggers("copy-out"),
    ]),
    program(&["doctl", "linode-cli", "oci", "ibmcloud", "hcloud", "scw"]).asks(&[CHANGES, FORCES]),
    program(&["terraform"]).reads_outside().asks(&[TERRAFORM]),
    program(&["tofu", "terragrunt"]).asks(&[TERRAFORM]),
    program(&["pulumi"]).asks(&[
        Verb(&["up", "destroy", "cancel", "import", "refresh"]).triggers(CLOUD),
        Operand(&["rm"]).triggers(CLOUD),
    ]),
    program(&["cdk", "serverless", "sls", "sam", "eb"])
        .asks(&[Verb(&["deploy", "destroy", "remove", "delete", "terminate", "bootstrap"]).triggers(CLOUD)]),
    program(&["ansible"]).runs(&[Text(&["-a", "--args"])]).asks(&[PROVISIONS]),
    program(&["ansible-playbook", "packer"]).asks(&[PROVISIONS]),
    program(&["heroku"]).asks(&[DEPLOYS, Verb(&["config*", "auth:token"]).triggers("secret-stores")]),
    program(&["vercel", "netlify", "fly", "flyctl", "railway", "render", "firebase"]).asks(&[DEPLOYS]),
    program(&["wrangler", "supabase"]).asks(&[DEPLOYS, super::databases::LOSES_ROWS]),
];

const CLOUD: &str = "cloud";

/// Words that change something in an account or read its keys.
const CHANGES: Ask = Any(&[
    Operand(&[
        "delete*", "remove*", "terminate*", "destroy*", "purge*", "put-*", "detach*", "revoke*", "stop*",
        "reset*", "disable*", "deregister*", "reboot*", "rollback*", "set-iam*", "attach-*",
        "create-access-key*", "update-*", "modify-*", "add-iam*", "authorize-*", "run-instances*",
        "import-key*", "invoke*", "send-command*", "schedule-key-deletion*", "start-session*", "get-secret*",
        "get-login-password*", "get-session-token*", "assume-role*", "access-secret*", "print-access-token*",
        "get-access-token*", "get-parameter*",
    ]),
    All(&[
        Operand(&["rb", "rm", "mv", "sync", "del", "deletefile", "move", "bisync", "ssh", "access"]),
        Any(&[Not(&Operand(&["versions"])), Operand(&["access"])]),
    ]),
])
.triggers(CLOUD);

const FORCES: Ask = Arg(&["--force"]).triggers(CLOUD);

const COPIES: When = Operand(&["cp", "rsync", "mv", "put", "sync", "mirror", "pipe", "upload-file"]);

const TERRAFORM: Ask = Verb(&[
    "destroy", "apply", "import", "taint", "untaint", "force-unlock", "run-all", "state rm", "state mv",
    "state push", "state replace-provider", "workspace delete",
])
.triggers(CLOUD);

const PROVISIONS: Ask = always(CLOUD).unless(Any(&[NoOperands, Verb(&["validate", "inspect", "fmt"])]));

const DEPLOYS: Ask = Any(&[
    Flag(&["--prod"]),
    Operand(&[
        "rm", "remove", "delete", "destroy", "purge", "reset", "rollback", "prod", "restart", "kill",
        "detach", "unset", "scale", "suspend", "*:rm", "*:remove", "*:delete", "*:destroy", "*:purge",
        "*:reset", "*:rollback", "*:prod", "*:restart", "*:kill", "*:detach", "*:unset", "*:scale",
        "*:suspend",
    ]),
])
.triggers(CLOUD);
