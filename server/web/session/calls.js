// The calls in an answer: which of them the user is asked about, and what the decisions do.

import { pathTo } from "../data/tree.js";
import { allow, hostOf, isAllowed, resultOf, settled } from "./tool_servers.js";
import * as threads from "./threads.js";

const MAX_ROUNDS = 10; // of calls without a question, after which the user is asked

/** The decisions about the calls of an answer that needs no question, or null. */
export function automatic({ messages }, answer) {
  if (!answer?.calls?.length || answer.finish !== "tool_calls") return null;
  const path = pathTo(messages, answer.id);
  const rounds = path.slice(path.findLastIndex(({ role }) => role === "user")).filter(({ calls }) => calls?.length);
  if (rounds.length > MAX_ROUNDS || !answer.calls.every(({ name }) => isAllowed(name))) return null;
  return answer.calls.map(() => "once");
}

/** The results of an answer's calls, {content, attachments} of each, or null if the user stops them. A
 * decision is {content}, which the user entered, or "once", "always" or "never" for a tool of an MCP server. */
export async function resultsOf(thread, answer, decisions) {
  const { signal } = threads.begin(thread);
  const results = [];
  try {
    await settled();
    for (const [at, call] of answer.calls.entries()) {
      const decision = decisions[at];
      if (decision === "always" && hostOf(call.name)) allow(call.name);
      results.push(decision.content === undefined ? await resultOf(call, decision !== "never", signal) : decision);
      if (signal.aborted) return null;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
    return null;
  } finally {
    threads.end(thread);
  }
  return results;
}
