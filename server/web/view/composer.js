// The field for a message, and the files that are attached to it.

import { DocumentError, isDocument, textOf } from "../documents/documents.js";
import { phrase } from "../strings/phrase.js";
import { byId, iconButton, make, picture } from "./dom.js";
import { showNotice, speak } from "./notices.js";
import { allowMicrophone, startMicrophone } from "./microphone.js";
import { isPicture, readPicture } from "./pictures.js";
import { isSound, longestSound, readSound } from "./sounds.js";

const MAX_TEXT = 1_000_000; // bytes of a text file, or characters in a document
const MAX_DOCUMENT = 50_000_000; // bytes
const LONG_PASTE = 2000; // characters; a longer text that is pasted becomes a file
const TYPING_PAUSE = 400; // milliseconds after the last key

const state = {
  files: [], reads: {}, count: async () => null, transcribe: async () => "", refusal: async () => "",
  changed: () => {}, timer: 0,
};

/** Bind the composer. `send(text, files)` returns whether the message was taken; `count(file)`
 * resolves to a number of tokens, or null; `transcribe(file)` to the text of speech, or throws an error
 * that says what is wrong; `refusal(text, files)` to the reason why a message cannot
 * be sent, or ""; `changed(tokens)` gets the size of the attached files. */
export function startComposer({ send, count, transcribe, refusal, changed }) {
  const input = byId("input");
  Object.assign(state, { count, transcribe, refusal, changed });
  byId("composer").onsubmit = (event) => {
    event.preventDefault();
    submit(send);
  };
  input.oninput = () => {
    allowSend();
    measureDraft();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit(send);
  });
  input.onpaste = paste;
  for (const [button, field] of [["attach", "files"], ["photograph", "camera"]]) {
    byId(button).onclick = () => byId(field).click();
    byId(field).onchange = () => {
      attach([...byId(field).files]);
      byId(field).value = "";
    };
  }
  startMicrophone(takeRecording);
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) attach([...event.dataTransfer.files]);
  });
}

/** Say whether the model reads `images`, how many seconds of `sounds` it reads, or false, and whether another
 * one `transcribes` speech. */
export function allowMedia(reads) {
  state.reads = reads;
  byId("photograph").hidden = !reads.images;
  allowMicrophone(longestSound(reads.sounds || (reads.transcribes ? Infinity : 0)));
}

/** Attach a text as a file. */
const attachText = (name, text) => add({ name, text, tokens: null });

function add(file) {
  state.files = [...state.files, file];
  draw();
  speak(phrase("composer.attached", { name: file.name }));
  state.count(file).then((tokens) => {
    file.tokens = tokens;
    draw();
  });
}

/** Find out whether the message can be sent, once nobody types. */
export function measureDraft() {
  clearTimeout(state.timer);
  state.timer = setTimeout(async () => {
    const draft = draftOf();
    const reason = draft.isEmpty ? "" : await state.refusal(draft.text, draft.files);
    if (!isSame(draft, draftOf())) return; // another measurement follows
    state.refused = reason ? draft : null;
    if (byId("refusal").textContent !== reason) byId("refusal").textContent = reason;
    allowSend();
  }, TYPING_PAUSE);
}

const isRefused = () => Boolean(state.refused) && isSame(state.refused, draftOf());

function draftOf() {
  const text = byId("input").value.trim();
  const { files } = state;
  return { text, files, isEmpty: !text && !files.length };
}

const isSame = (one, other) => one.text === other.text && one.files === other.files;

function submit(send) {
  const input = byId("input");
  if (isRefused()) return;
  if (!send(input.value.trim(), state.files)) return;
  input.value = "";
  state.files = [];
  draw();
}

function paste(event) {
  const { files } = event.clipboardData;
  const text = event.clipboardData.getData("text/plain");
  if (files.length && !text) attach([...files]); // a table is a text and a picture of it
  else if (text.length > LONG_PASTE) attachText(unusedName(phrase("composer.pasted"), "txt"), text);
  else return;
  event.preventDefault();
}

async function attach(files) {
  for (const file of files) {
    const reason = await attacherOf(file)(file);
    if (reason) showNotice(phrase("file.failed", { name: file.name, reason }));
  }
}

function attacherOf(file) {
  if (isPicture(file)) return attachPicture;
  if (isSound(file)) return state.reads.sounds ? attachSound : attachTranscript;
  return isDocument(file) ? attachDocument : attachTextFile;
}

// A recording is attached for a model that reads sound. Otherwise its words are typed.
async function takeRecording(file) {
  if (state.reads.sounds) return attach([file]);
  speak(phrase("composer.transcribing"));
  try {
    const words = await state.transcribe(file);
    const input = byId("input");
    input.setRangeText(words, input.selectionStart, input.selectionEnd, "end");
    input.oninput();
    input.focus();
  } catch (error) {
    showNotice(error.message);
  }
}

// They return the reason why a file cannot be attached, or nothing.
async function attachPicture(file) {
  if (!state.reads.images) return phrase("file.no_images");
  try {
    add({ name: file.name, image: await readPicture(file), tokens: null });
  } catch {
    return phrase("file.bad_image");
  }
}

async function attachSound(file) {
  const seconds = longestSound(state.reads.sounds);
  try {
    add({ name: file.name, sound: await readSound(file, seconds), tokens: null });
  } catch (error) {
    return error instanceof RangeError ? phrase("file.long_sound", { seconds }) : phrase("file.bad_sound");
  }
}

async function attachTranscript(file) {
  if (!state.reads.transcribes) return phrase("file.no_sound");
  speak(phrase("composer.transcribing"));
  try {
    attachText(`${file.name}.txt`, await state.transcribe(file));
  } catch (error) {
    return error.message;
  }
}

async function attachDocument(file) {
  if (file.size > MAX_DOCUMENT) return phrase("file.too_large");
  speak(phrase("composer.reading", { name: file.name }));
  try {
    const text = await textOf(file);
    if (text.length > MAX_TEXT) return phrase("file.too_long");
    attachText(file.name, text);
  } catch (error) {
    if (!(error instanceof DocumentError)) throw error;
    return error.message;
  }
}

async function attachTextFile(file) {
  if (file.size > MAX_TEXT) return phrase("file.too_long");
  try {
    const data = new Uint8Array(await file.arrayBuffer());
    const encoding = { "255,254": "utf-16le", "254,255": "utf-16be" }[data.subarray(0, 2)] ?? "utf-8";
    const text = new TextDecoder(encoding, { fatal: true }).decode(data);
    if (text.includes("\0")) throw new TypeError("binary");
    attachText(file.name, text);
  } catch {
    return phrase("file.not_text");
  }
}

function unusedName(base, ending) {
  const names = new Set(state.files.map(({ name }) => name));
  for (let number = 1; ; number += 1) {
    const name = `${base}-${number}.${ending}`;
    if (!names.has(name)) return name;
  }
}

function draw() {
  const chips = state.files.map((file) => {
    const { name, tokens } = file;
    const remove = iconButton("close", phrase("composer.remove", { name }), () => {
      state.files = state.files.filter((other) => other !== file);
      draw();
      byId("input").focus();
    });
    const label = make("span", {}, tokens === null ? name : phrase("file.tokens", { name, count: tokens }));
    const thumbnail = file.image ? [picture(file)] : [];
    return make("li", { className: "chip" }, ...thumbnail, label, remove);
  });
  byId("attached").hidden = !chips.length;
  byId("attached").replaceChildren(...chips);
  allowSend();
  state.changed(state.files.reduce((sum, { tokens }) => sum + (tokens ?? 0), 0));
}

function allowSend() {
  byId("send").disabled = draftOf().isEmpty || isRefused();
}
