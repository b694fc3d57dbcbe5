// Tabs: one visible panel, and arrow keys move between tabs.

function showTab(tab, { focus = false } = {}) {
  const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    byId(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) {
    tab.focus();
  }
  tab.dispatchEvent(new CustomEvent("shown"));
}

function wireTabs(list) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) {
      showTab(tab);
    }
  });
  list.addEventListener("keydown", (event) => {
    const place = tabs.indexOf(document.activeElement);
    const target = { ArrowRight: place + 1, ArrowLeft: place - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (place !== -1 && target !== undefined && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      showTab(tabs[target % tabs.length], { focus: true });
    }
  });
}
