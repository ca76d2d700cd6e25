// Drives a browser. Each line of the standard input is a request in JSON, and
// each line of the standard output is a response:
//
//   {"id": 1, "page": "p1", "method": "goto", "params": {"url": "https://127.0.0.1/"}}
//   {"id": 1, "result": {"status": 200}}
//   {"id": 2, "error": "there is no page p2"}
//
// Requests of different pages run at the same time. The browser ends with the
// standard input. The arguments are flags for the browser.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import puppeteer from "puppeteer-core";

const folder = fileURLToPath(new URL("node_modules/.chromium", import.meta.url));
const axe = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

const executable = join(folder, "chromium");
const env = { ...process.env, FONTCONFIG_FILE: join(folder, "fonts.conf") };
if (spawnSync(executable, ["--version"], { env }).status !== 0) {
  // The machine lacks shared libraries. The package brings them.
  env.LD_LIBRARY_PATH = join(folder, "al2023", "lib");
}
const browser = await puppeteer.launch({
  executablePath: executable,
  env,
  headless: "shell",
  pipe: true,
  acceptInsecureCerts: true,
  args: process.argv.slice(2),
});

const pages = new Map();
let made = 0;

// newPage returns a page with cookies of its own. It records what happens in it.
async function newPage({ width, height, dark, forced, scripts }) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  const activity = { requests: [], console: [], dialogs: [], errors: [], violations: [] };
  page.setDefaultTimeout(10_000);
  page.on("request", (r) => activity.requests.push({ url: r.url(), method: r.method(), type: r.resourceType() }));
  page.on("console", (m) => activity.console.push(m.text()));
  page.on("pageerror", (e) => activity.errors.push(e.message ?? String(e)));
  page.on("dialog", async (d) => {
    activity.dialogs.push(d.message());
    await d.dismiss().catch(() => {}); // its frame can be gone
  });
  context.on("targetcreated", async (t) => {
    if (t.type() === "page" && t !== page.target()) activity.requests.push({ url: t.url(), method: "GET", type: "window" });
  });
  const session = await page.createCDPSession();
  await session.send("Audits.enable");
  // A person sees the page, and may let it copy. Only a page with the focus can.
  await session.send("Emulation.setFocusEmulationEnabled", { enabled: true });
  await session.send("Browser.setPermission", {
    permission: { name: "clipboard-write" }, setting: "granted", browserContextId: context.id,
  });
  session.on("Audits.issueAdded", ({ issue }) => {
    const found = issue.details?.contentSecurityPolicyIssueDetails;
    if (found) activity.violations.push(`${found.violatedDirective}: ${found.blockedURL ?? found.contentSecurityPolicyViolationType}`);
  });
  await page.setViewport({ width, height });
  await look(session, { dark, forced });
  await page.setJavaScriptEnabled(scripts);
  const name = `p${++made}`;
  pages.set(name, { page, context, session, activity });
  return name;
}

// look sets what the system of the person prefers, and whether the page is on
// paper.
function look(session, { dark, forced, print }) {
  return session.send("Emulation.setEmulatedMedia", { media: print ? "print" : "", features: [
    { name: "prefers-color-scheme", value: dark ? "dark" : "light" },
    { name: "prefers-reduced-motion", value: "reduce" },
    { name: "forced-colors", value: forced ? "active" : "none" },
  ] });
}

// following waits for the document that an action leads to.
async function following(page, action) {
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), action()]);
}

// label returns a short name of an element, for messages.
const label = `(e) => {
  const text = (e.getAttribute("aria-label") ?? e.innerText ?? "").trim().replace(/\\s+/g, " ").slice(0, 40);
  return e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (text ? " " + text : "");
}`;

// overflow returns the elements that make the document scroll sideways. A box that
// scrolls has no effect on what is positioned by an element outside of it.
const overflow = `(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const outer = (e) => ["absolute", "fixed"].includes(getComputedStyle(e).position) ? e.offsetParent : e.parentElement;
  const scrolls = (e) => e && e !== document.body && e !== document.documentElement &&
    (getComputedStyle(e).overflowX !== "visible" || scrolls(outer(e)));
  const wide = [...document.body.querySelectorAll("*")]
    .filter((e) => e.getBoundingClientRect().right > width + 0.5 && !scrolls(outer(e)));
  return (wide.length > 0 ? wide : [document.documentElement]).map(${label});
})()`;

// focused describes the element with the focus. It is null for the document.
const focused = `(() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e);
  const box = e.getClientRects()[0];
  const y = box && (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2; // of a box that may be taller
  const top = box && document.elementFromPoint(box.x + box.width / 2, y);
  return {
    name: (${label})(e),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    covered: !top || !(e.contains(top) || top.contains(e)),
  };
})()`;

// The rules of axe, and those of them that depend on colors.
const allRules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const colorRules = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

const methods = {
  async goto({ page }, { url }) {
    const response = await page.goto(url, { waitUntil: "load" });
    return { status: response?.status() ?? 0, headers: response?.headers() ?? {} };
  },
  async title({ page }) { return page.title(); },
  async url({ page }) { return page.url(); },
  async content({ page }) { return page.content(); },
  async text({ page }, { selector }) { return page.$eval(selector, (e) => e.innerText); },
  async click({ page }, { selector }) { await page.click(selector); },
  async follow({ page }, { selector }) { await following(page, () => page.click(selector)); },
  async fill({ page }, { selector, value }) {
    await page.$eval(selector, (e) => { e.value = ""; });
    await page.focus(selector);
    await page.keyboard.sendCharacter(value);
  },
  async press({ page }, { key }) { await page.keyboard.press(key); },
  async enter({ page }) { await following(page, () => page.keyboard.press("Enter")); },
  async evaluate({ page }, { expression }) { return (await page.evaluate(expression)) ?? null; },
  async cookies({ context }) { return context.cookies(); },
  async setCookie({ context }, { cookie }) { await context.setCookie(cookie); },
  async resize({ page }, { width, height }) { await page.setViewport({ width, height }); },
  async look({ session }, params) { await look(session, params); },
  async screenshot({ page }, { fullPage }) { return page.screenshot({ fullPage, encoding: "base64" }); },
  async axe({ page }, { selector, colors }) {
    if (!(await page.evaluate("Boolean(globalThis.axe)"))) await page.evaluate(`(() => { ${axe} })()`);
    const { violations } = await page.evaluate((selector, runOnly) => globalThis.axe.run(selector || document, {
      runOnly, resultTypes: ["violations"],
    }), selector, colors ? colorRules : allRules);
    return violations.map((v) => ({
      rule: v.id,
      impact: v.impact ?? "",
      help: v.help,
      nodes: v.nodes.map((n) => ({ target: n.target.join(" "), summary: n.failureSummary ?? "" })),
    }));
  },
  async overflow({ page }) { return page.evaluate(overflow); },
  async tabStops({ page }, { limit }) {
    const stops = [];
    while (stops.length < limit) {
      await page.keyboard.press("Tab");
      const stop = await page.evaluate(focused);
      if (!stop) break;
      stops.push(stop);
    }
    return stops;
  },
  async activity({ activity }) { return activity; },
  async close({ context }, _, name) {
    pages.delete(name);
    await context.close();
  },
};

async function answer({ page, method, params }) {
  if (method === "newPage") return newPage(params);
  const found = pages.get(page);
  if (!found) throw new Error(`there is no page ${page}`);
  if (!Object.hasOwn(methods, method)) throw new Error(`there is no method ${method}`);
  return methods[method](found, params, page);
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  answer(request).then(
    (result) => ({ id: request.id, result: result ?? null }),
    (error) => ({ id: request.id, error: String(error?.message ?? error) }),
  ).then((response) => process.stdout.write(JSON.stringify(response) + "\n"));
}
await browser.close();
