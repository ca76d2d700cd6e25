const all = (css) => document.querySelectorAll(css);

// Adds a button that copies its content to each block of code.
for (const pre of all("pre[role=group]")) {
  pre.insertAdjacentHTML("beforebegin", "<div class=code><button class=copy aria-live=polite>Copy</button></div>");
  const box = pre.previousSibling, button = box.firstChild, show = (text) => { button.textContent = text; };
  box.prepend(pre);
  button.onclick = async () => {
    // There is no clipboard without TLS, and a person can deny it.
    try {
      await navigator.clipboard.writeText(pre.textContent);
      show("Copied");
    } catch {
      show("Not copied");
      getSelection().selectAllChildren(pre);
    }
    setTimeout(show, 2000, "Copy");
  };
}

// Shows the field that filters the inputs.
for (const filter of all(".filter")) {
  filter.hidden = false;
  filter.oninput = () => {
    for (const row of all("[id^=input-]")) {
      row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase());
    }
  };
  // A link can lead to an input that the filter hides.
  onhashchange = () => {
    filter.value = "";
    filter.oninput();
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  };
}

// A click outside of an open menu closes it, so at most one is open.
onclick = (e) => {
  for (const menu of all(".menu[open]")) menu.open = menu.contains(e.target);
};

onkeydown = (e) => {
  const [menu] = all(".menu[open]"), [search] = all("[name=q]");
  // Escape closes the open menu.
  if (e.key == "Escape" && menu) {
    menu.open = false;
    menu.firstChild.focus();
  }
  // A slash leads to the search, unless a person writes it.
  if (e.key == "/" && search && !e.ctrlKey && !e.metaKey && !e.target.closest("input, select")) {
    search.focus();
    e.preventDefault();
  }
};
