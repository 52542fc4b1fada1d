pub fn is_silence(reply: &str) -> bool { reply.trim() == "[SILENT]" }
