// A fork beside the recorded call: the questions and answers in each round, and the ends.

function forkEnd(fork) {
  switch (fork.end) {
    case "asks":
      return "The fork waits for answers to the last round.";
    case "body":
      return "The fork would now run the body.";
    case "step":
      return `The fork would now run the step ${fork.step}, which has no recorded result.`;
    default:
      return `The fork ended: ${fork.end}${fork.reason ? `: ${fork.reason}` : ""}.`;
  }
}

function forkedAnswer(answer) {
  if (["approved", "rejected"].includes(answer.action) && answer.data) {
    return `${answer.action}: ${answer.data}`;
  }
  if (answer.action !== "accept" || answer.data === undefined || answer.data === null) {
    return answer.action;
  }
  return typeof answer.data === "string" ? answer.data : JSON.stringify(answer.data);
}

function recordedAnswer(question) {
  const { answer } = question;
  if (!answer) {
    return make("span", "quiet", "no answer");
  }
  return make("span", "", answer.action === "accept" && answer.data?.text !== undefined ? answer.data.text : answerText(answer));
}

// One row for each question that the call or the fork asked in a round.
function forkedRows(number, round) {
  const recorded = new Map(recordedQuestions(number).map((question) => [question.key, question]));
  const forked = new Map((round?.questions ?? []).map((question) => [question.key, question]));
  return [...new Set([...recorded.keys(), ...forked.keys()])].map((key) => {
    const before = recorded.get(key);
    const now = forked.get(key);
    const was = before?.message?.text ?? "";
    const says = now?.message ?? "";
    const isSame = !before || !now || was === says;
    return [
      String(number),
      [make("b", "", key), isSame && (says || was) ? make("p", "quiet", says || was) : null],
      before || round?.recorded[key] ? recordedCell(before, round?.recorded[key], isSame ? "" : was) : make("span", "quiet", "not asked"),
      now ? forkedCell(round, key, isSame ? "" : says) : make("span", "quiet", round ? "not asked" : "not reached"),
    ];
  });
}

function recordedCell(question, answer, message) {
  return [message ? make("p", "quiet", message) : null, answer ? make("span", "", forkedAnswer(answer)) : recordedAnswer(question)];
}

function forkedCell(round, key, message) {
  const answer = round.answers[key];
  const shown =
    answer === undefined
      ? make("span", "badge again", "open")
      : make("span", "", forkedAnswer(answer), make("span", "quiet", round.own.includes(key) ? " (yours)" : " (as recorded)"));
  const complaint = round.complaints[key];
  return [message ? make("p", "quiet", message) : null, complaint ? make("p", "quiet", `Asked again: ${complaint}`) : null, shown];
}

function forkResult(result) {
  const texts = (result?.content ?? []).filter((block) => block.type === "text").map((block) => make("pre", "value", block.text));
  return result && !texts.length ? [make("pre", "value", JSON.stringify(result, null, 2))] : texts;
}

function drawForked(comparison) {
  const rounds = new Map(comparison.rounds.map((round) => [round.round, round]));
  const recorded = call.fork.rounds.filter((number) => number >= comparison.at);
  const numbers = [...new Set([...rounds.keys(), ...recorded])].sort((a, b) => a - b);
  const rows = numbers.flatMap((number) => forkedRows(number, rounds.get(number)));
  rows.push(["End", "", make("span", "", comparison.recorded.end), [make("span", "", forkEnd(comparison.fork)), ...forkResult(comparison.fork.result)]]);
  const remarks = [];
  if (comparison.differs) {
    remarks.push(make("p", "remark", `The current code does not reach that round as recorded: ${comparison.differs}.`));
  }
  if (comparison.not_asked.length) {
    remarks.push(make("p", "remark", `No question asked for these answers: ${comparison.not_asked.join(", ")}.`));
  }
  const table = tableOf("Recorded call and fork", ["Round", "Question", "Recorded", "Fork"], rows);
  byId("forked").replaceChildren(...remarks, table);
}
