//! `approvals.mode: smart`, from the configuration to the audit log.

use std::fs;

use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::{Value, json};

use crate::env::CommandEnv;

const CONTAINED: &str = "git checkout -- no-such-file 2>/dev/null; echo done";

fn decide(verdict: &str) -> ScriptStep {
    ScriptStep::call("c", "decide", json!({"verdict": verdict, "reason": format!("because of {verdict}")}))
}

fn with(command: &'static str, settings: &str, steps: &[ScriptStep]) -> (CommandEnv, ScriptedModel) {
    let model = ScriptedModel::start(steps.to_vec()).unwrap();
    let settings = settings.replace("URL", &model.url());
    (CommandEnv::new(command, &format!("approvals: {{mode: smart}}\n{settings}")), model)
}

fn audit(env: &CommandEnv) -> Vec<Value> {
    let log = fs::read_to_string(env.home.path().join("logs/audit.jsonl")).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_model_of_its_own_reviews_commands_of_exec_and_tools() {
    let settings = "model: {default: main, base_url: 'http://localhost:9/v1'}\n\
                    auxiliary: {approval: {base_url: 'URL', model: small, api_key: hunter2-hunter2}}\n";
    let (env, model) = with("exec", settings, &[decide("allow"), decide("refuse"), decide("allow")]);
    let allowed = env.run(&["--", CONTAINED]);
    assert_eq!((allowed.code, allowed.out.as_str()), (Some(0), "done\n"), "{allowed:?}");
    assert!(allowed.err.contains("allowed by the model (approvals.mode smart)"), "{allowed:?}");
    let refused = env.run(&["--json", "--", CONTAINED]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let report = &refused.json()["refused"];
    assert_eq!(report["reason"], "refused by the model (approvals.mode smart): because of refuse");
    assert_eq!((&report["rules"], &report["question"]), (&json!(["git-loss"]), &Value::Null));
    // A person decides about the rest, and there is no terminal to ask on.
    let open = env.run(&["--", "chmod 777 victim"]);
    assert_eq!(open.code, Some(4), "{open:?}");
    assert!(open.err.contains("no terminal to ask on"), "{open:?}");
    // A yes of the command line needs no model.
    assert_eq!(env.run(&["--yes", "--", CONTAINED]).code, Some(0));
    let entries = audit(&env);
    let verdicts: Vec<&Value> = entries.iter().map(|entry| &entry["about"]["verdict"]).collect();
    assert_eq!(verdicts, ["allow", "refuse", "allow"]);
    let received = model.received();
    assert_eq!((model.failures(), received.len()), (Vec::new(), 3));
    assert_eq!(received[0].json["model"], "small");
    assert_eq!(received[0].header("authorization"), Some("Bearer hunter2-hunter2"));
}

#[test]
fn the_main_model_reviews_commands_by_default() {
    let settings = "model: {default: main, base_url: 'URL'}\n";
    let (env, model) = with("tool", settings, &[decide("allow")]);
    let call = |rest: &[&str]| {
        let arguments = json!({"command": CONTAINED}).to_string();
        env.run(&[&["call", "terminal", &arguments], rest].concat())
    };
    let allowed = call(&[]);
    assert_eq!(allowed.json()["approval"], "allowed by the model (approvals.mode smart)", "{allowed:?}");
    assert_eq!(call(&["--yes"]).json()["approval"], "approved by cli");
    assert_eq!((model.failures(), model.received().len()), (Vec::new(), 1));
    assert_eq!(model.received()[0].json["model"], "main");
}

#[test]
fn without_a_model_a_person_is_asked() {
    let (env, model) = with("exec", "", &[]);
    let run = env.run(&["--", CONTAINED]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.err.contains("no model can review commands"), "{run:?}");
    assert!(run.err.contains("no terminal to ask on"), "{run:?}");
    assert_eq!((audit(&env), model.received().len()), (Vec::new(), 0));
}
