//! `hermes tool`: lists the tools of the agent, and calls one as a model would.

use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::tool::CallContext;
use hermes_agent::{Approver, Tool, ToolContext, ToolResult, TurnEvent, TurnObserver};
use hermes_types::{Attendance, CallId, EntryPoint};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::approval::{Consent, owner};
use crate::args::{ToolAction, ToolCallArgs};
use crate::command::config::settings;
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;
use crate::{Config, Context, Failure, FailureKind, Result, block_on, place};
use hermes_config::resolve::agent::{self, Actor, SharedResources};
use hermes_config::resolve::{self, ResolveMode, SessionChoice, random_hex};

const MAX_ARGUMENT_BYTES: u64 = 64 << 20;

pub(crate) fn run(action: ToolAction, context: &Context) -> Result<ExitCode> {
    match action {
        ToolAction::Ls => list(context).map(|()| ExitCode::SUCCESS),
        ToolAction::Call(args) => {
            let config = settings(context)?;
            let (tool, arguments) = (find_tool(&args.name)?, arguments(&args.arguments)?);
            block_on(call(tool, arguments, &args, context, config))
        }
    }
}

fn list(context: &Context) -> Result<()> {
    let specs: Vec<_> = Tool::ALL.iter().map(|tool| tool.spec()).collect();
    let sentence = |text: &str| text.split_once(['.', ':']).map_or(text, |(first, _)| first).to_owned();
    let rows: Vec<_> =
        specs.iter().map(|spec| vec![spec.name.clone(), sentence(&spec.description)]).collect();
    context.screen.list(&json!({"tools": specs}), "no tools", &["NAME", "WHAT IT DOES"], &rows)
}

fn find_tool(name: &str) -> Result<Tool> {
    Tool::from_name(name).ok_or_else(|| {
        let similarity = |tool: &Tool| strsim::jaro_winkler(tool.name(), name);
        let similar = Tool::ALL.iter().filter(|tool| similarity(tool) > 0.8);
        let failure = Failure::usage(format!("no tool `{name}`"));
        match similar.max_by(|one, other| similarity(one).total_cmp(&similarity(other))) {
            Some(tool) => failure.hint(format!("did you mean `{}`?", tool.name())),
            None => failure.hint("Run `hermes tool ls` to list the tools."),
        }
    })
}

fn arguments(text: &str) -> Result<Map<String, Value>> {
    let mut input = String::new();
    let text = match text {
        "-" => {
            io::stdin().lock().take(MAX_ARGUMENT_BYTES).read_to_string(&mut input)?;
            &input
        }
        text => text,
    };
    let message = match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => return Ok(arguments),
        Ok(_) => "the arguments are not a JSON object".to_owned(),
        Err(error) => format!("the arguments are not JSON: {error}"),
    };
    Err(Failure::usage(message)
        .hint("Use an object such as '{\"command\": \"ls\"}'; `hermes tool ls --json` shows the arguments."))
}

async fn call(
    tool: Tool,
    arguments: Map<String, Value>,
    args: &ToolCallArgs,
    context: &Context,
    config: &Config,
) -> Result<ExitCode> {
    let request = args.place.request();
    let session = SessionChoice::new(&request, config)?;
    let resolved = resolve::resolve_place(context, config, &request, &session, ResolveMode::Create)?;
    let consent = Consent::new(args.yes, args.arguments != "-");
    let view = Arc::new(TurnView::plain(context.screen));
    let approver = Arc::new(TerminalApprover::new(context.screen, Arc::clone(&view), consent));
    let actor = Actor {
        person: owner(),
        entry_point: EntryPoint::Cli,
        attendance: Attendance::Attended(vec![owner()]),
        approver: Arc::clone(&approver) as Arc<dyn Approver>,
    };
    let store = resolve::store::open(context).await?;
    let shared = SharedResources::new(context, config);
    let mut setup = agent::session_config(&shared, config, resolved.clone(), actor, store);
    if consent == Consent::Given {
        setup.reviewer = None;
    }
    let tools = ToolContext::new(setup);
    let is_shown = !context.screen.is_json();
    let observer = move |event: TurnEvent| {
        if is_shown {
            view.show_event(&event);
        }
    };
    let result = place::with_reaper(context, config, &resolved, async {
        let result = call_tool(&tools, &approver, tool, arguments, &observer).await?;
        place::release_place(context, &request, &resolved, &session, tools).await.map(|()| result)
    });
    let result = result.await?;
    context.screen.json(&result.content)?;
    Ok(match (result.succeeded, result.is_denied()) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => FailureKind::Refused.code(),
        (false, false) => FailureKind::Failed.code(),
    })
}

async fn call_tool(
    tools: &ToolContext,
    approver: &TerminalApprover,
    tool: Tool,
    arguments: Map<String, Value>,
    observer: TurnObserver<'_>,
) -> Result<ToolResult> {
    let call_id = CallId::new(format!("call_{}", random_hex()?));
    let stop = CancellationToken::new();
    let call = CallContext { call_id: &call_id, stop: &stop, turn: None, observer };
    Ok(approver.run_with_answers(tools.call_tool(tool, arguments, call), &stop).await?)
}
