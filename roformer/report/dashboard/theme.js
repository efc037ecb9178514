"use strict";

/* The theme: the system's, until the reader chooses one. Run before anything is drawn. */

const theme = {
  system: window.matchMedia("(prefers-color-scheme: dark)"),

  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : theme.system.matches;
  },

  choose(name) {
    document.documentElement.dataset.theme = name;
    try {
      window.localStorage.setItem("theme", name);
    } catch { /* no storage: chosen for this visit */ }
  },

  recall() {
    try {
      const name = window.localStorage.getItem("theme");
      if (name === "dark" || name === "light") document.documentElement.dataset.theme = name;
    } catch { /* no storage: the system's */ }
  },
};

theme.recall();
