//! `hermes tool`: the tools of the agent, listed and called as a model would call them.

use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::tool::CallContext;
use hermes_agent::{Approver, Tool, ToolContext, ToolResult, TurnEvent, TurnObserver};
use hermes_types::{Attendance, CallId, EntryPoint};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::approval::{Consent, owner};
use crate::args::{ToolAction, ToolCallArgs};
use crate::command::config::settings;
use crate::place;
use crate::screen::OutputFormat;
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve::agent::{self, Actor, SharedResources};
use hermes_config::resolve::random_hex;
use hermes_config::resolve::{self, ResolveMode, SessionChoice};

/// The most that is read from standard input.
const MAX_ARGUMENT_BYTES: u64 = 64 << 20;

pub(crate) fn run(action: ToolAction, context: &Context) -> Result<ExitCode, Failure> {
    match action {
        ToolAction::Ls => list(context),
        ToolAction::Call(args) => {
            let config = settings(context)?;
            let (tool, arguments) = (find_tool(&args.name)?, arguments(&args.arguments)?);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(call(tool, arguments, &args, context, config))
        }
    }
}

fn list(context: &Context) -> Result<ExitCode, Failure> {
    let specs: Vec<_> = Tool::ALL.into_iter().map(Tool::spec).collect();
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!({"tools": specs}))?,
        OutputFormat::Text => {
            let first = |text: &str| text.split_once(['.', ':']).map_or(text, |(first, _)| first).to_owned();
            let rows: Vec<_> =
                specs.iter().map(|spec| vec![spec.name.clone(), first(&spec.description)]).collect();
            context.screen.table(&["NAME", "WHAT IT DOES"], &rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find_tool(name: &str) -> Result<Tool, Failure> {
    Tool::from_name(name).ok_or_else(|| {
        let nearest = Tool::ALL.into_iter().max_by(|one, other| {
            strsim::jaro_winkler(one.name(), name).total_cmp(&strsim::jaro_winkler(other.name(), name))
        });
        let failure = Failure::new(FailureKind::Usage, format!("there is no tool `{name}`"));
        match nearest.filter(|tool| strsim::jaro_winkler(tool.name(), name) > 0.8) {
            Some(tool) => failure.hint(format!("did you mean `{}`?", tool.name())),
            None => failure.hint("`hermes tool ls` lists them"),
        }
    })
}

fn arguments(text: &str) -> Result<Map<String, Value>, Failure> {
    let mut input = String::new();
    let text = match text {
        "-" => {
            io::stdin().lock().take(MAX_ARGUMENT_BYTES).read_to_string(&mut input)?;
            &input
        }
        text => text,
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(Failure::new(FailureKind::Usage, "the arguments are JSON, but no object")),
        Err(error) => Err(Failure::new(FailureKind::Usage, format!("the arguments are not JSON: {error}"))),
    }
    .map_err(|failure: Failure| {
        failure.hint("such as '{\"command\": \"ls\"}'; `hermes tool ls --json` shows what each takes")
    })
}

async fn call(
    tool: Tool,
    arguments: Map<String, Value>,
    args: &ToolCallArgs,
    context: &Context,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let request = args.place.request();
    let session = SessionChoice::new(&request, config)?;
    let plan = resolve::resolve_place(context, config, &request, &session, ResolveMode::Create)?;
    let reaper = resolve::places(context, config).start_reaper(plan.engine_access());
    let consent = match (args.yes, args.arguments.as_str()) {
        (true, _) => Consent::Given,
        (false, "-") => Consent::Unavailable,
        (false, _) => Consent::Ask,
    };
    let stage = Arc::new(TurnView::plain(context.screen));
    let desk = Arc::new(TerminalApprover::new(context.screen, Arc::clone(&stage), consent));
    let attendance = Attendance::Attended(vec![owner()]);
    let visitor = Actor {
        person: owner(),
        entry_point: EntryPoint::Cli,
        attendance,
        approver: Arc::clone(&desk) as Arc<dyn Approver>,
    };
    let store = resolve::store::open(context).await?;
    let watch = {
        let stage = Arc::clone(&stage);
        let is_shown = context.screen.format == OutputFormat::Text;
        move |event: TurnEvent| {
            if is_shown {
                stage.show_event(&event);
            }
        }
    };
    let hands = ToolContext::new(agent::session_config(
        &SharedResources::new(context, config),
        config,
        plan.clone(),
        visitor,
        store,
    ));
    let done = call_tool(&hands, &desk, tool, arguments, &watch).await?;
    place::release_place(context, &request, &plan, &session, Some(hands)).await?;
    // What it could not remove the next one tries again; the call has its own outcome.
    if let Err(error) = reaper.finish().await {
        tracing::warn!(%error, "leftovers of places could not be removed");
    }
    context.screen.json(&done.content)?;
    Ok(match (done.succeeded, done.is_denied()) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => FailureKind::Refused.code(),
        (false, false) => FailureKind::Failed.code(),
    })
}

async fn call_tool(
    hands: &ToolContext,
    desk: &TerminalApprover,
    tool: Tool,
    arguments: Map<String, Value>,
    watch: TurnObserver<'_>,
) -> Result<ToolResult, Failure> {
    let id = CallId::new(format!("call_{}", random_hex()?));
    let stop = CancellationToken::new();
    let called = hands.call_tool(
        tool,
        arguments,
        CallContext { call_id: &id, stop: &stop, turn: None, observer: watch },
    );
    Ok(desk.run_with_answers(called, &stop).await?)
}
