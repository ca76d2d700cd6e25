// Unpacks the browser of @sparticuz/chromium into node_modules/.chromium.
import { writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = join(here, "node_modules", ".chromium");
await mkdir(folder, { recursive: true });
// The package unpacks to the folder of temporary files.
process.env.TMPDIR = folder;
const { inflate } = await import("@sparticuz/chromium");
const bin = new URL("../bin/", import.meta.resolve("@sparticuz/chromium"));
const files = ["chromium.br", "fonts.tar.br", "swiftshader.tar.br", "al2023.tar.br"];
await Promise.all(files.map((name) => inflate(fileURLToPath(new URL(name, bin)))));

// Pages look the same on each machine.
const dejavu = fileURLToPath(new URL("ttf", import.meta.resolve("dejavu-fonts-ttf/package.json")));
const prefer = (family, font) =>
  `<alias binding="same"><family>${family}</family><prefer><family>${font}</family></prefer></alias>`;
writeFileSync(join(folder, "fonts.conf"), `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${join(folder, "fonts")}</dir>
  <dir>${dejavu}</dir>
  <cachedir>${join(folder, "fonts-cache")}</cachedir>
  ${prefer("system-ui", "Open Sans")}
  ${prefer("sans-serif", "Open Sans")}
  ${prefer("monospace", "DejaVu Sans Mono")}
</fontconfig>
`);
