use serde_json::json;

use super::*;

/// The documented errors of providers.
#[test]
fn errors_are_classified_by_the_fields_of_each_provider() {
    let openai = |code: &str, message: &str| json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
    let anthropic = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"});
    let openrouter = |code: u16, message: &str| json!({"error": {"code": code, "message": message, "metadata": {"provider_name": "X"}}});
    let llama = |code: u16, kind: &str, message: &str| json!({"error": {"code": code, "message": message, "type": kind}});
    let cases = [
        (
            400,
            anthropic(
                "invalid_request_error",
                "This credential is only authorized for use with Claude Code and cannot be used for other API requests.",
            ),
            FailureClass::Auth,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            ),
            FailureClass::ReasoningRejected,
        ),
        (
            400,
            json!([{"error": {"code": 400, "message": "Function call is missing a thought_signature in functionCall parts.", "status": "INVALID_ARGUMENT"}}]),
            FailureClass::ReasoningRejected,
        ),
        (
            400,
            openai(
                "invalid_request_error",
                "The reasoning_content in the thinking mode must be passed back to the API.",
            ),
            FailureClass::ReasoningMissing,
        ),
        // Ollama.
        (
            400,
            json!({"error": "{\"error\":{\"code\":400,\"message\":\"request (8889 tokens) exceeds the available context size (4096 tokens), try increasing it\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":8889,\"n_ctx\":4096}}"}),
            FailureClass::ContextOverflow,
        ),
        (400, json!({"error": "the input length exceeds the context length"}), FailureClass::ContextOverflow),
        (400, json!({"error": "\"gemma3\" does not support thinking"}), FailureClass::Parameter),
        // OpenAI.
        (401, openai("invalid_api_key", "Incorrect API key provided: sk-x."), FailureClass::Auth),
        (
            429,
            json!({"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}),
            FailureClass::Billing,
        ),
        (
            429,
            json!({"error": {"message": "Rate limit reached for gpt-5", "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}),
            FailureClass::RateLimit,
        ),
        (
            404,
            openai("model_not_found", "The model `gpt-9` does not exist or you do not have access to it."),
            FailureClass::ModelNotFound,
        ),
        (
            400,
            openai("context_length_exceeded", "Your input exceeds the context window of this model."),
            FailureClass::ContextOverflow,
        ),
        (
            400,
            openai("invalid_encrypted_content", "The encrypted content could not be verified."),
            FailureClass::ReasoningRejected,
        ),
        (
            400,
            json!({"error": {"message": "Unsupported parameter: 'reasoning_effort' is not supported with this model.", "type": "invalid_request_error", "param": "reasoning_effort", "code": "unsupported_parameter"}}),
            FailureClass::Parameter,
        ),
        (
            400,
            json!({"error": {"message": "Your organization must be verified to stream this model.", "type": "invalid_request_error", "param": "stream", "code": "unsupported_value"}}),
            FailureClass::StreamUnsupported,
        ),
        (400, openai("content_policy_violation", "Your request was rejected."), FailureClass::ContentPolicy),
        (
            500,
            json!({"error": {"message": "The server had an error", "type": "server_error", "param": null, "code": null}}),
            FailureClass::Server,
        ),
        // Servers without image input.
        (
            400,
            openai("", "Invalid content type. image_url is only supported by certain models."),
            FailureClass::ImagesUnsupported,
        ),
        (
            404,
            openrouter(404, "No endpoints found that support image input"),
            FailureClass::ImagesUnsupported,
        ),
        (
            500,
            llama(500, "server_error", "image input is not supported by this server"),
            FailureClass::ImagesUnsupported,
        ),
        (
            500,
            json!({"error": "failed to process inputs: this model is missing data required for image input"}),
            FailureClass::ImagesUnsupported,
        ),
        (
            400,
            json!({"error": "Model does not support images. Please use a model that does."}),
            FailureClass::ImagesUnsupported,
        ),
        (
            400,
            openai("", "this model does not support image input (ref: 1)"),
            FailureClass::ImagesUnsupported,
        ),
        (
            400,
            openai(
                "invalid_request_error",
                "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 9",
            ),
            FailureClass::ImagesUnsupported,
        ),
        (400, openai("", "message[4].content must be a string"), FailureClass::ImagesUnsupported),
        // Anthropic.
        (401, anthropic("authentication_error", "invalid x-api-key"), FailureClass::Auth),
        (403, anthropic("permission_error", "Your API key does not have permission"), FailureClass::Auth),
        (
            400,
            anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
            FailureClass::Billing,
        ),
        (
            429,
            anthropic("rate_limit_error", "This request would exceed your rate limit"),
            FailureClass::RateLimit,
        ),
        (
            429,
            anthropic("rate_limit_error", "Extra usage is required for long context requests."),
            FailureClass::LongContextTier,
        ),
        (529, anthropic("overloaded_error", "Overloaded"), FailureClass::Overloaded),
        (500, anthropic("api_error", "Internal server error"), FailureClass::Server),
        (
            413,
            anthropic("request_too_large", "Request exceeds the maximum size"),
            FailureClass::PayloadTooLarge,
        ),
        (404, anthropic("not_found_error", "model: claude-9"), FailureClass::ModelNotFound),
        (
            400,
            anthropic("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
            FailureClass::ContextOverflow,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.1.content.0: Invalid `signature` in `thinking` block",
            ),
            FailureClass::ReasoningRejected,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.3.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
            ),
            FailureClass::ReasoningRejected,
        ),
        (400, anthropic("invalid_request_error", "messages: roles must alternate"), FailureClass::Format),
        // OpenRouter.
        (
            402,
            openrouter(402, "This request requires more credits, or fewer max_tokens."),
            FailureClass::Billing,
        ),
        (402, openrouter(402, "Rate limited upstream, try again shortly"), FailureClass::RateLimit),
        (403, openrouter(403, "Your input was flagged by moderation"), FailureClass::ContentPolicy),
        (
            404,
            openrouter(404, "No endpoints found matching your data policy (Paid model training)."),
            FailureClass::PolicyBlocked,
        ),
        (502, openrouter(502, "Provider returned error"), FailureClass::Server),
        (503, openrouter(503, "No instances available"), FailureClass::Overloaded),
        // llama.cpp.
        (
            400,
            json!({"error": {"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}}),
            FailureClass::ContextOverflow,
        ),
        (500, llama(500, "server_error", "failed to parse grammar"), FailureClass::Grammar),
        (503, llama(503, "unavailable_error", "Loading model"), FailureClass::Overloaded),
        // vLLM.
        (
            400,
            json!({"object": "error", "message": "This model's maximum context length is 4096 tokens. However, your prompt has 5000.", "type": "BadRequestError", "param": null, "code": 400}),
            FailureClass::ContextOverflow,
        ),
        (
            404,
            json!({"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "param": null, "code": 404}),
            FailureClass::ModelNotFound,
        ),
        // Ollama.
        (404, json!({"error": "model \"x\" not found, try pulling it first"}), FailureClass::ModelNotFound),
        (500, json!({"error": "llama runner process has terminated"}), FailureClass::Server),
        // DeepSeek.
        (
            402,
            json!({"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": null, "code": "invalid_request_error"}}),
            FailureClass::Billing,
        ),
        // FastAPI.
        (
            422,
            json!({"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}),
            FailureClass::Parameter,
        ),
    ];
    for (status, body, expected) in cases {
        let failure = from_response(status, RetryHeaders::default(), &body.to_string());
        assert_eq!(failure.class, expected, "{status} {body}");
        assert_eq!(failure.status, Some(status));
    }
}

#[test]
fn bodies_that_are_not_json_are_classified_by_their_status() {
    let cases = [
        (502, "<html><body>Bad Gateway</body></html>", FailureClass::Server),
        (404, "", FailureClass::Unknown),
        (403, "<html>max_tokens and maximum context length</html>", FailureClass::Auth),
        (418, "I'm a teapot", FailureClass::Format),
        (504, "upstream request timeout", FailureClass::Timeout),
    ];
    for (status, body, expected) in cases {
        assert_eq!(from_response(status, RetryHeaders::default(), body).class, expected, "{status} {body}");
    }
    assert_eq!(
        from_response(404, RetryHeaders::default(), "").message,
        "HTTP status 404 without an error message"
    );
}

#[test]
fn the_available_output_is_read() {
    let cases = [
        (
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x",
            Some(64_000),
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease input length or `max_tokens` and try again",
            Some(10_000),
        ),
        (
            "max_tokens is too large: 9999. This model supports at most 4096 completion tokens, whereas you provided 9999.",
            Some(4096),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion).",
            Some(3192),
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 8192 tokens and your request has 4000 input tokens (5000 > 8192 - 4000).",
            Some(4192),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            None,
        ),
        (
            "maximum context length is 8192 tokens. However, you requested 9000 tokens (9000 in the messages, 0 in the completion).",
            None,
        ),
    ];
    for (message, expected) in cases {
        let failure =
            from_response(400, RetryHeaders::default(), &json!({"error": {"message": message}}).to_string());
        assert_eq!(failure.available_output, expected, "{message}");
        let class = if expected.is_some() { FailureClass::OutputCap } else { FailureClass::ContextOverflow };
        assert_eq!(failure.class, class, "{message}");
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_bounded() {
    let delay = |headers: RetryHeaders<'_>| {
        from_response(429, headers, "{}").retry_after.map(|wait| wait.as_secs_f64())
    };
    let seconds = |header: &str| delay(RetryHeaders { retry_after: Some(header), ..RetryHeaders::default() });
    let milliseconds =
        |header: &str| delay(RetryHeaders { retry_after_ms: Some(header), retry_after: Some("7") });
    assert_eq!(milliseconds("250"), Some(0.25));
    assert_eq!(milliseconds("1e19"), Some(120.0));
    assert_eq!(milliseconds("soon"), Some(7.0));
    assert_eq!(seconds("1e300"), Some(120.0));
    assert_eq!(seconds("7"), Some(7.0));
    assert_eq!(seconds("0.5"), Some(0.5));
    assert_eq!(seconds("86400"), Some(120.0));
    assert_eq!(seconds("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0.0));
    assert_eq!(seconds(&httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600))), Some(120.0));
    for header in ["", "soon", "-1", "NaN", "inf"] {
        assert_eq!(seconds(header), None, "{header}");
    }
}

#[test]
fn errors_inside_of_a_stream_are_classified() {
    let cases = [
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            FailureClass::Overloaded,
        ),
        (
            json!({"error": {"code": 429, "message": "Provider returned error"}, "choices": []}),
            FailureClass::RateLimit,
        ),
        (
            json!({"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}),
            FailureClass::Server,
        ),
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": null}),
            FailureClass::RateLimit,
        ),
        (json!({"error": "an error was encountered while running the model"}), FailureClass::Unknown),
    ];
    for (body, expected) in cases {
        assert_eq!(from_stream(&body).class, expected, "{body}");
    }
}
