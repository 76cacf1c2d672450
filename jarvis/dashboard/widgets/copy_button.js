// Copies the link of the page. Browsers offer the clipboard on https and localhost only; elsewhere
// an older command copies, and where that fails, too, the link is shown and selected.

const SHOWN_MS = 4000

const copied = async (text, input) => {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    input.hidden = false
    input.select()
    const isCopied = document.execCommand("copy")
    input.hidden = isCopied
    return isCopied
  }
}

export default ({ data, parentElement }) => {
  const part = name => parentElement.querySelector(`.${name}`)
  const [button, icon, words, input] = ["copy", "icon", "words", "link"].map(part)

  const show = (symbol, text, announced = "") => {
    icon.textContent = symbol
    words.textContent = text
    part("spoken").textContent = announced
  }

  if (button.dataset.link !== data.link) {
    clearTimeout(button.timer)
    show("link", "Copy link")
    input.hidden = true
  }
  button.dataset.link = data.link
  button.title = "Copy the link to this page with its analysis and all settings"
  button.onclick = async () => {
    clearTimeout(button.timer)
    input.value = data.link
    if (await copied(data.link, input)) {
      show("check", "Link copied", "The link of this page is in the clipboard.")
      button.focus()
      button.timer = setTimeout(() => show("link", "Copy link"), SHOWN_MS)
    } else {
      show("link", "Press Ctrl+C", "The browser does not allow copying. The link is selected.")
    }
  }
}
