// Keyboard shortcuts, and the search over pages, findings, operations, kernels and runs. The server
// answers each query; results are links that open in this tab without loading the page again.

const SHORTCUTS = [
  [["/", "Ctrl K"], "Search pages, findings, operations, kernels and runs"],
  [["j", "k"], "Next and previous finding; a list of all where the page has no cards"],
  [["Enter"], "Open the finding or the search result in focus"],
  [["?"], "This list"],
  [["Esc"], "Close"],
]
const DELAY_MS = 150
const TYPED_IN = "input, textarea, select, canvas, [contenteditable=true], [role=combobox], [role=listbox], [role=grid], [role=dialog]"

// Opens a link as the browser's Forward would, so that Streamlit runs the page in this session.
const go = href => {
  dispatchEvent(new PointerEvent("pointerdown")) // a history entry of its own
  history.pushState(null, "", href)
  dispatchEvent(new PopStateEvent("popstate"))
}

const isTyped = event => event.composedPath().some(node => node.matches?.(TYPED_IN))

const EXPANDER = '[data-testid="stExpander"]'

const cards = () =>
  [...document.querySelectorAll(`[class*="st-key-findings_"] ${EXPANDER} summary`)].filter(
    summary => !summary.closest(EXPANDER).parentElement.closest(EXPANDER), // not within a card
  )

const element = (name, className, text) => {
  const made = document.createElement(name)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}

export default ({ data, parentElement, setTriggerValue }) => {
  const part = selector => parentElement.querySelector(selector)
  const [search, shortcuts, query] = [".search", ".shortcuts", ".query"].map(part)
  const state = (parentElement.jarvisSearch ??= { asked: "", timer: 0 })

  const links = () => [...parentElement.querySelectorAll(".results a")]

  const ask = (text, isFindings = false) => {
    state.asked = isFindings ? "" : text
    part(".status").textContent = text || isFindings ? "Searching …" : ""
    if (!text && !isFindings) part(".results").replaceChildren()
    else setTriggerValue("asked", { query: text, is_findings: isFindings, number: Date.now() })
  }

  const show = dialog => {
    if (!dialog.open) dialog.showModal()
  }

  const focused = () => parentElement.activeElement ?? parentElement.getRootNode().activeElement

  const close = dialog => {
    dialog.close()
    // Its focused part keeps the focus until the next frame, and would take the next key.
    if (dialog.contains(focused())) focused().blur()
  }

  const openSearch = isFindings => {
    query.value = ""
    part(".results").replaceChildren()
    state.isFindings = isFindings
    show(search)
    query.focus()
    ask("", isFindings)
  }

  const drawResults = () => {
    const groups = new Map()
    for (const result of data.results) {
      if (!groups.has(result.kind)) groups.set(result.kind, [])
      groups.get(result.kind).push(result)
    }
    const parts = []
    for (const [kind, found] of groups) {
      const list = element("ul")
      for (const { text, note, href } of found) {
        const link = element("a")
        link.href = new URL(href, document.baseURI).href
        link.append(element("span", "text", text), element("span", "note", note))
        const item = element("li")
        item.append(link)
        list.append(item)
      }
      parts.push(element("h2", "", kind === "Run" || found.length > 1 ? `${kind}s` : kind), list)
    }
    part(".results").replaceChildren(...parts)
    const count = data.results.length
    part(".status").textContent = count
      ? `${count} ${count === 1 ? "result" : "results"}. Arrow keys move, Enter opens.`
      : data.is_findings ? "This run has no findings." : "No name contains these words."
    if (state.isFindings && data.is_findings) links()[0]?.focus()
  }

  const move = step => {
    const all = links()
    const at = all.indexOf(focused())
    const next = at + step
    if (next < 0) query.focus()
    else all[Math.min(next, all.length - 1)]?.focus()
  }

  const moveCard = step => {
    const all = cards()
    if (!all.length) return openSearch(true)
    const at = all.indexOf(document.activeElement)
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)]
    next.focus({ preventScroll: true })
    next.scrollIntoView({ block: "center" })
  }

  const onKey = event => {
    if (search.open || shortcuts.open) return
    if (event.defaultPrevented || isTyped(event)) return
    const isCtrlK = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k"
    if (!isCtrlK && (event.ctrlKey || event.metaKey || event.altKey)) return
    if (isCtrlK || event.key === "/") openSearch(false)
    else if (event.key === "?") show(shortcuts)
    else if (event.key === "j") moveCard(1)
    else if (event.key === "k") moveCard(-1)
    else return
    event.preventDefault()
  }

  search.onkeydown = event => {
    event.stopPropagation() // keys of the page below
    const isInQuery = event.composedPath()[0] === query
    const step = { ArrowDown: 1, ArrowUp: -1, ...(isInQuery ? {} : { j: 1, k: -1 }) }[event.key]
    if (step) {
      event.preventDefault()
      move(step)
    } else if (event.key === "Escape") {
      event.preventDefault() // else the first press only empties the field
      close(search)
    } else if (isInQuery && event.key === "Enter") {
      event.preventDefault()
      if (query.value.trim() === state.asked && data.query === state.asked) links()[0]?.click()
    } else if (!isInQuery && event.key === "/") {
      event.preventDefault()
      query.focus()
    }
  }
  shortcuts.onkeydown = event => {
    if (shortcuts.open) event.stopPropagation()
  }
  query.oninput = () => {
    clearTimeout(state.timer)
    state.isFindings = false
    state.timer = setTimeout(() => ask(query.value.trim()), DELAY_MS)
  }
  part(".results").onclick = event => {
    const link = event.target.closest("a")
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    close(search)
    go(link.href)
  }
  for (const dialog of [search, shortcuts]) {
    dialog.querySelector(".close").onclick = () => close(dialog)
    dialog.onclick = event => {
      if (event.target === dialog) close(dialog) // the backdrop
    }
  }
  part(".open").onclick = () => openSearch(false)
  part(".help").onclick = () => show(shortcuts)
  part("dl").replaceChildren(
    ...SHORTCUTS.flatMap(([keys, meaning]) => {
      const names = element("dt")
      keys.forEach((key, number) => names.append(number ? " or " : "", element("kbd", "", key)))
      return [names, element("dd", "", meaning)]
    }),
  )
  const isAnswer = data.is_findings ? state.isFindings : data.query && data.query === state.asked
  if (search.open && isAnswer) drawResults()
  document.addEventListener("keydown", onKey)
  return () => document.removeEventListener("keydown", onKey)
}
