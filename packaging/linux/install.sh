#!/bin/sh
# Installs Quire for the user who runs this, or takes it away again. No administrator is needed.
#
#   ./install.sh                        install this folder's program, or replace an older one by it
#   ./install.sh --prefix DIR           install below DIR instead of ~/.local
#   ./install.sh --uninstall            remove the program; conversations and models stay
#   ./install.sh --uninstall --remove-data
#                                       remove the conversations, settings and models too
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
data=${XDG_DATA_HOME:-$HOME/.local/share}/Quire
cache=${XDG_CACHE_HOME:-$HOME/.cache}/Quire
case $here in
    # The installed program's own script: it was told once where to install.
    */lib/quire) prefix=${here%/lib/quire} ;;
    *) prefix=$HOME/.local ;;
esac
action=install
remove_data=no

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0"
}

while [ $# -gt 0 ]; do
    case $1 in
        --uninstall) action=uninstall ;;
        --remove-data) remove_data=yes ;;
        --prefix)
            [ $# -ge 2 ] || { echo "--prefix needs a folder" >&2; exit 2; }
            case $2 in
                /*) prefix=$2 ;;
                *) prefix=$(pwd)/$2 ;;
            esac
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown argument: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
if [ $remove_data = yes ] && [ $action = install ]; then
    echo "--remove-data goes with --uninstall" >&2
    exit 2
fi

program=$prefix/lib/quire
share=$prefix/share
sizes="16 22 24 32 48 64 128 256 512"

refresh() {
    # They only speed up what desktops find by themselves too.
    update-desktop-database "$share/applications" >/dev/null 2>&1 || true
    gtk-update-icon-cache -q -t "$share/icons/hicolor" >/dev/null 2>&1 || true
}

# A path as an argument of Exec= in a .desktop file: quoted, % doubled, and what has a meaning
# between quotes behind a backslash, which is written twice in such a file.
quoted() {
    printf '%s' "$1" |
        sed -e 's/\\/\\\\\\\\/g' -e 's/["`$]/\\\\&/g' -e 's/%/%%/g' -e 's/^/"/' -e 's/$/"/'
}

# Replacing the files of a program that runs would break it in the middle.
require_closed() {
    for link in /proc/[0-9]*/exe; do
        if [ "$(readlink "$link" 2>/dev/null)" = "$program/quire" ]; then
            echo "Quire is open. Close it, then run this again; nothing was changed." >&2
            exit 1
        fi
    done
}

uninstall() {
    require_closed
    rm -rf -- "$program" "$program.new" "$program.old" "$cache"
    rm -f -- "$prefix/bin/quire" "$share/applications/quire.desktop"
    rm -f -- "$share/metainfo/local.quire.Quire.metainfo.xml"
    for size in $sizes; do
        rm -f -- "$share/icons/hicolor/${size}x${size}/apps/quire.png"
    done
    rm -f -- "$share/icons/hicolor/scalable/apps/quire.svg"
    refresh
    echo "Quire was removed from $prefix."
    if [ $remove_data = yes ]; then
        rm -rf -- "$data"
        echo "Conversations, settings and models were removed from $data."
    elif [ -d "$data" ]; then
        echo "Your conversations, settings and models stay in $data."
        echo "To remove them too: delete that folder."
    fi
}

install() {
    if [ ! -x "$here/quire" ] || [ ! -d "$here/_internal" ]; then
        echo "There is no program beside this script, in $here." >&2
        echo "What to do: unpack the whole archive and start install.sh in its folder." >&2
        exit 1
    fi
    if [ "$here" = "$program" ]; then
        echo "This is the installed program itself; start the script of the unpacked archive." >&2
        exit 1
    fi
    require_closed
    mkdir -p -- "$prefix/lib" "$prefix/bin" "$share/applications" "$share/metainfo"
    # Beside it first: a full disk leaves the old program as it was.
    rm -rf -- "$program.new" "$program.old"
    if ! cp -R -- "$here" "$program.new"; then
        rm -rf -- "$program.new"
        echo "The program could not be copied to $prefix/lib; nothing was changed." >&2
        exit 1
    fi
    chmod -R u+w -- "$program.new"
    if [ -d "$program" ]; then
        mv -- "$program" "$program.old"
    fi
    mv -- "$program.new" "$program"
    rm -rf -- "$program.old"
    ln -sfn -- "$program/quire" "$prefix/bin/quire"
    for size in $sizes; do
        folder=$share/icons/hicolor/${size}x${size}/apps
        mkdir -p -- "$folder"
        cp -- "$program/icons/hicolor/${size}x${size}/apps/quire.png" "$folder/quire.png"
    done
    mkdir -p -- "$share/icons/hicolor/scalable/apps"
    cp -- "$program/icons/hicolor/scalable/apps/quire.svg" "$share/icons/hicolor/scalable/apps/"
    cp -- "$program/local.quire.Quire.metainfo.xml" "$share/metainfo/"
    command=$(quoted "$program/quire")
    while IFS= read -r line; do
        case $line in
            Exec=*) printf 'Exec=%s\n' "$command" ;;
            *) printf '%s\n' "$line" ;;
        esac
    done <"$program/quire.desktop" >"$share/applications/quire.desktop"
    refresh
    echo "Quire was installed in $program and is in the menu of your desktop."
    echo "To remove it: $program/install.sh --uninstall"
}

if [ $action = install ]; then install; else uninstall; fi
