// Filters the table of containers by free text, site, components and versions. The filter is kept in the address, so that
// a link can be shared and the back button works. Without JavaScript the whole table is shown.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const filter = document.getElementById("filter");
  // the versions of each component, oldest first; a row holds the indexes of its versions in these lists
  const versions = JSON.parse(filter.dataset.versions);
  // other names of the same component, which menus leave out: PyTorch is torch, in containers of another name, too
  const aliases = JSON.parse(filter.dataset.aliases);
  const rows = Array.from(document.querySelectorAll("#containers tbody tr"), (element) => ({
    element, site: element.dataset.site, archived: element.classList.contains("archived"),
    inside: JSON.parse(element.dataset.inside), words: element.dataset.words,
  }));
  const words = document.getElementById("words");
  const site = document.getElementById("site");
  const conditions = document.getElementById("conditions");
  const number = document.getElementById("number");
  const clear = document.getElementById("clear");
  const share = document.getElementById("share");
  // whether archived containers were opened by hand
  let archived = false;

  const normal = (name) => name.toLowerCase().replace(/[-_.]+/g, "-");
  const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  // a date in place of a version, which is neither older nor newer than versions (as in `ebsif list --has`)
  const isDate = (version) => /^20\d{6}$/.test(version);
  const numbers = (version) => version.match(/^v?([\d.]*)/)[1].split(".").filter(Boolean).map(Number);
  const isEarly = (version) => /^v?[\d.]*\.?(dev|a|b|rc)\d*/.test(version);

  const compare = (one, other) => {
    const [left, right] = [numbers(one), numbers(other)];
    for (let place = 0; place < Math.max(left.length, right.length); place += 1) {
      const difference = (left[place] || 0) - (right[place] || 0);
      if (difference) return difference;
    }
    return isEarly(other) - isEarly(one);
  };

  // 2.7 begins 2.7.1, but not 2.70
  const begins = (version, text) => version === text
    || (version.startsWith(text) && !(/\d$/.test(text) && /^\d/.test(version.slice(text.length))));

  const tests = {
    "": begins, "=": begins, "==": begins,
    ">=": (one, other) => compare(one, other) >= 0, ">": (one, other) => compare(one, other) > 0,
    "<=": (one, other) => compare(one, other) <= 0, "<": (one, other) => compare(one, other) < 0,
  };

  const versionOf = (row, name) => (row.inside[name] === null || row.inside[name] === undefined
    ? null : versions[name][row.inside[name]]);

  // the free text as a list of {name, sign, version} or {word}
  const parse = (text) => {
    const parts = text.toLowerCase().replace(/\s*([=<>]+)\s*/g, "$1").split(/[\s,]+/).filter(Boolean);
    const found = [];
    for (let place = 0; place < parts.length; place += 1) {
      const part = parts[place];
      const signed = part.match(/^(.+?)(==?|>=|<=|>|<)v?(\d.*)$/);
      const joined = part.match(/^(.+)[-/]v?(\d[\w.+]*)$/);
      const next = (parts[place + 1] || "").match(/^v?(\d[\w.+]*)$/);
      if (signed && normal(signed[1]) in versions) {
        found.push({name: normal(signed[1]), sign: signed[2], version: signed[3]});
      } else if (next && normal(part) in versions) {
        found.push({name: normal(part), sign: "", version: next[1]});
        place += 1;
      } else if (joined && normal(joined[1]) in versions) {
        found.push({name: normal(joined[1]), sign: "", version: joined[2]});
      } else {
        found.push({word: part});
      }
    }
    return found;
  };

  const fits = (row, {word, name, sign, version}) => {
    if (name) {
      const own = versionOf(row, name in row.inside ? name : aliases[name]);
      return own !== null && (sign[0] !== "<" && sign[0] !== ">" || isDate(own) === isDate(version))
        && tests[sign](own, version);
    }
    if (/^v?\d[\d.]*$/.test(word)) {
      return Object.keys(row.inside).some((one) => begins(versionOf(row, one) || "", word.replace(/^v/, "")))
        || row.words.includes(word);
    }
    return row.words.includes(word) || Object.keys(row.inside).some((one) => one.includes(normal(word)));
  };

  // whether a row may have a version that isn't recorded
  const mayFit = (row, {name, component}) => row.inside[name || component] === null;

  const has = (row, {component, least, most}) => {
    if (!(component in row.inside)) return false;
    if (!least && !most) return true;
    const place = row.inside[component];
    const known = versions[component];
    return place !== null && [least, most].every((limit) => !limit || isDate(limit) === isDate(known[place]))
      && (!least || place >= known.indexOf(least)) && (!most || place <= known.indexOf(most));
  };

  // marks the badges that the filter asks for, and adds those of other components
  const mark = (row, names) => {
    const cell = row.element.querySelector(".inside");
    cell.querySelectorAll(".added").forEach((badge) => badge.remove());
    cell.querySelectorAll(".badge").forEach((badge) => badge.classList.toggle("match", names.has(badge.dataset.name)));
    [...names].filter((name) => name in row.inside && !cell.querySelector(`[data-name="${CSS.escape(name)}"]`))
      .forEach((name) => {
        const badge = document.createElement("span");
        const version = document.createElement("b");
        badge.className = "badge match added";
        badge.dataset.name = name;
        version.textContent = versionOf(row, name) || "";
        badge.append(`${name} `, version);
        cell.prepend(badge, " ");
      });
  };

  const option = (select, text, value) => select.add(new Option(text, value));

  const addCondition = (component = "", least = "", most = "") => {
    const condition = document.getElementById("condition").content.cloneNode(true).firstElementChild;
    const select = condition.querySelector(".component");
    Object.keys(versions).filter((name) => name === component || !(name in aliases))
      .forEach((name) => option(select, name, name));
    select.value = component in versions ? component : "";
    select.addEventListener("change", () => offerVersions(condition));
    offerVersions(condition, least, most);
    conditions.append(condition);
  };

  const offerVersions = (condition, least = "", most = "") => {
    const known = versions[condition.querySelector(".component").value] || [];
    [[".least", least], [".most", most]].forEach(([name, version]) => {
      const select = condition.querySelector(name);
      select.replaceChildren();
      option(select, "any", "");
      known.forEach((text) => option(select, text, text));
      // links may have versions with what identifies the build
      const wanted = known.includes(version) ? version : version.split("+")[0];
      select.value = known.includes(wanted) ? wanted : "";
      select.disabled = known.length === 0;
      select.parentElement.hidden = known.length === 0;
    });
  };

  const chosen = () => Array.from(conditions.children, (condition) => ({
    component: condition.querySelector(".component").value, least: condition.querySelector(".least").value,
    most: condition.querySelector(".most").value,
  })).filter((condition) => condition.component);

  const show = () => {
    const wanted = chosen();
    const text = parse(words.value);
    const isFiltering = Boolean(wanted.length || text.length || (site && site.value));
    const names = new Set([...wanted.map(({component}) => component), ...text.map(({name, word}) => name || normal(word))]
      .filter((name) => name in versions));
    const count = {true: [0, 0], false: [0, 0]};
    let unsure = 0;
    rows.forEach((row) => {
      const shown = (!site || !site.value || row.site === site.value) && wanted.every((one) => has(row, one))
        && text.every((one) => fits(row, one));
      row.element.hidden = !shown;
      unsure += !shown && !row.archived && (!site || !site.value || row.site === site.value)
        && wanted.every((one) => has(row, one) || mayFit(row, one))
        && text.every((one) => fits(row, one) || mayFit(row, one));
      if (shown) mark(row, names);
      count[row.archived][0] += shown;
      count[row.archived][1] += 1;
    });
    document.querySelectorAll(".software").forEach((group) => {
      group.hidden = !group.querySelector("tbody tr:not([hidden])");
    });
    document.querySelectorAll(".archive").forEach((archive) => {
      const shown = archive.querySelectorAll("tbody tr:not([hidden])").length;
      archive.querySelector(".shown").textContent = shown;
      archive.hidden = shown === 0;
      // what only archived containers have is shown at once
      archive.open = archived || (isFiltering && count.false[0] === 0);
    });
    document.querySelectorAll(".site").forEach((one) => { one.hidden = !one.querySelector(".software:not([hidden])"); });
    const [current, old] = [count.false[0], count.true[0]];
    number.value = isFiltering
      ? `${current} of ${plural(count.false[1], "container")}${old ? `, ${old} archived` : ""}`
      : plural(current, "container");
    if (isFiltering && !current && !old) {
      number.value = "No container is known to fit: the catalogue lists main components only";
    }
    if (unsure) number.value += `; ${unsure} more may fit, because the version isn't recorded`;
    clear.hidden = share.hidden = !isFiltering;
  };

  const address = () => {
    const choice = new URLSearchParams();
    if (words.value.trim()) choice.set("q", words.value.trim());
    if (site && site.value) choice.set("site", site.value);
    if (archived) choice.set("archived", "yes");
    chosen().forEach(({component, least, most}) => choice.append("has", [component, least, most].join(" ").trim()));
    return `#${choice}`;
  };

  // a new entry in the history for each filter, but not for each letter that is typed
  let typing = null;
  const remember = () => {
    clearTimeout(typing);
    if (address() !== (location.hash || "#")) history.pushState(null, "", address());
  };

  const recall = () => {
    const choice = new URLSearchParams(location.hash.slice(1) || location.search);
    const wanted = choice.get("site");
    words.value = choice.get("q") || "";
    if (site) site.value = Array.from(site.options).some((one) => one.value === wanted) ? wanted : "";
    archived = choice.get("archived") === "yes";
    conditions.replaceChildren();
    choice.getAll("has").forEach((text) => addCondition(...text.split(" ")));
    if (!conditions.children.length) addCondition();
    show();
  };

  filter.addEventListener("input", (event) => {
    show();
    clearTimeout(typing);
    if (event.target === words) typing = setTimeout(remember, 800);
  });
  filter.addEventListener("change", () => { show(); remember(); });
  filter.addEventListener("submit", (event) => { event.preventDefault(); remember(); });
  document.querySelectorAll(".archive > summary").forEach((summary) => summary.addEventListener("click", (event) => {
    event.preventDefault();
    archived = !summary.parentElement.open;
    document.querySelectorAll(".archive").forEach((archive) => { archive.open = archived; });
    remember();
  }));
  document.getElementById("more").addEventListener("click", () => {
    addCondition();
    conditions.lastElementChild.querySelector("select").focus();
  });
  clear.addEventListener("click", () => {
    words.value = "";
    if (site) site.value = "";
    conditions.replaceChildren();
    addCondition();
    show();
    remember();
    words.focus();
  });
  share.addEventListener("click", () => { remember(); copyText(share, location.href); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      words.focus();
    }
  });
  window.addEventListener("popstate", recall);
  filter.hidden = false;
  recall();
});
