// Adds a button that copies its content to each block of code.
for (const pre of document.querySelectorAll("pre[role=group]")) {
  const box = document.createElement("div"), button = document.createElement("button");
  box.className = "code";
  button.className = "copy";
  button.type = "button";
  button.ariaLive = "polite";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  pre.replaceWith(box);
  box.append(pre, button);
}

// Shows the field that filters the inputs.
const filter = document.querySelector(".filter");
if (filter) {
  filter.hidden = false;
  filter.addEventListener("input", () => {
    const text = filter.value.toLowerCase();
    for (const row of document.querySelectorAll("#inputs [id^=input-]")) {
      row.hidden = !row.textContent.toLowerCase().includes(text);
    }
  });
}
