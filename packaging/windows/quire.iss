; Inno Setup 6 script of the Windows installer. packaging/windows_installer.py runs it and gives it
;   AppVersion  the version, 1.2.3 or 1.2.3rc1
;   AppNumbers  the version in numbers alone, 1.2.3.0
;   Variant     cpu or cuda
;   SourceDir   the frozen program, dist\quire
;   OutputDir   where the installer goes
;   IconFile    quire.ico
; It writes no file of the user's: conversations and models lie in {localappdata}\Quire, which the
; program makes itself, and stay there when a newer version is installed over this one.

#ifndef AppVersion
  #error Start the build with packaging/dev.py build; it sets AppVersion and the others.
#endif

[Setup]
; Never to be changed: it tells a newer version which older one to replace.
AppId={{6D0C4B5E-3C1B-4B7E-9F67-0B1A7C6E52D4}
AppName=Quire
AppVersion={#AppVersion}
AppVerName=Quire {#AppVersion}
AppPublisher=Quire
VersionInfoVersion={#AppNumbers}
UninstallDisplayName=Quire
UninstallDisplayIcon={app}\quire.exe
SetupIconFile={#IconFile}
OutputDir={#OutputDir}
OutputBaseFilename=quire-{#AppVersion}-windows-x86_64-{#Variant}-setup
; For this user alone and without an administrator's password, unless one is wanted.
PrivilegesRequired=lowest
PrivilegesRequiredOverridesAllowed=dialog commandline
DefaultDirName={autopf}\Quire
DisableProgramGroupPage=yes
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
; Windows 10 1809, the oldest that Qt 6.11 runs on.
MinVersion=10.0.17763
Compression=lzma2/max
SolidCompression=yes
LZMANumBlockThreads=2
WizardStyle=modern
; A running Quire is asked to close, so that no file of it is in use.
CloseApplications=yes
RestartApplications=no

[Languages]
Name: "en"; MessagesFile: "compiler:Default.isl"

[Tasks]
Name: "desktopicon"; Description: "{cm:CreateDesktopIcon}"; GroupDescription: "{cm:AdditionalIcons}"; Flags: unchecked

[InstallDelete]
; What only an older version has must not stay beside the new one's files.
Type: filesandordirs; Name: "{app}\_internal"

[Files]
Source: "{#SourceDir}\*"; DestDir: "{app}"; Flags: ignoreversion recursesubdirs createallsubdirs

[Icons]
Name: "{autoprograms}\Quire"; Filename: "{app}\quire.exe"
Name: "{autodesktop}\Quire"; Filename: "{app}\quire.exe"; Tasks: desktopicon

[UninstallDelete]
; Compiled kernels; nothing of the user's.
Type: filesandordirs; Name: "{localappdata}\Quire\Cache"

[Run]
Filename: "{app}\quire.exe"; Description: "{cm:LaunchProgram,Quire}"; Flags: nowait postinstall skipifsilent

[CustomMessages]
en.RemoveData=Remove your conversations, settings and models too?%n%nThey lie in %1. Whoever installs Quire again finds them there if you keep them.

[Code]
// What the user made goes only when it is asked for: with a click on Yes, where No is the default,
// or, for an uninstallation without windows, with /REMOVEDATA on the command line.
function RemoveDataWasAsked(const Folder: String): Boolean;
var
  Index: Integer;
begin
  Result := False;
  for Index := 1 to ParamCount do
    if CompareText(ParamStr(Index), '/REMOVEDATA') = 0 then
      Result := True;
  if not Result and not UninstallSilent then
    Result := MsgBox(FmtMessage(CustomMessage('RemoveData'), [Folder]),
      mbConfirmation, MB_YESNO or MB_DEFBUTTON2) = IDYES;
end;

procedure CurUninstallStepChanged(CurUninstallStep: TUninstallStep);
var
  Folder: String;
begin
  if CurUninstallStep <> usPostUninstall then
    Exit;
  Folder := ExpandConstant('{localappdata}\Quire');
  if DirExists(Folder) and RemoveDataWasAsked(Folder) then
    DelTree(Folder, True, True, True);
end;
